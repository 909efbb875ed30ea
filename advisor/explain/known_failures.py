"""Failures whose cause their own words tell, and what helps against each."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from ...records import DeviceInfo, Evidence, Finding, Trial
from ...units import format_bytes
from ..measured.kernel_limits import kernel_limit
from ..measured.measurements import Measurements
from ..measured.refused import not_of_the_size, request_of, taken_by, worked_aside


class KnownFailure(msgspec.Struct, frozen=True):
    """A known cause of an exception.

    Attributes:
        what: in a few words.
        remedy: what to do.
    """

    what: str
    remedy: str


SHARED_MEMORY = KnownFailure(
    "/dev/shm is full: data workers hand their batches over in it",
    "Give it more room (docker run --shm-size=8g or --ipc=host; in Kubernetes an emptyDir of "
    "medium Memory at /dev/shm), or take fewer data workers or a smaller prefetch_factor.",
)
TOO_LARGE_FOR_KERNELS = KnownFailure(
    "no kernel takes tensors of this size; memory is not the limit",
    "Smaller sizes ran; stay below this one.",
)
PINNED = KnownFailure(
    "the host's page-locked memory was refused, not the GPU's",
    "Set pin_memory=False, or keep fewer batches in flight: num_workers x prefetch_factor.",
)
TAKEN = "Wait for it or end it, or choose another GPU (--device cuda:N); then run again."
ASIDE = (
    "The training size stands. Put torch.no_grad() around an evaluation, or give that loader a "
    "smaller batch; then run again."
)
SCRIPTS_FAULT = (
    "This is a fault of the script, not of its batch size: look for a shape that grows with a "
    "wrong number, or a negative one."
)
_SHARED = (
    # torch/utils/data/_utils/signal_handling.py and dataloader.py, and DataLoader.cpp
    "out of shared memory",
    "insufficient shared memory",
    # aten/src/ATen/MapAllocator.cpp
    "unable to allocate shared memory(shm)",
    "unable to write to file </torch_",
    "unable to resize file </torch_",
)
_BUS_ERROR = "is killed by signal: bus error"
_GATHERED = re.compile(
    r"(?:gather got an input of invalid size: got|input tensor at index \d+ has invalid shape) "
    r"\[([\d, ]+)\], but expected \[([\d, ]+)\]"
)
"""torch/csrc/cuda/comm.cpp, where DataParallel puts the parts of an output together."""
_PINNING = "(in the pin memory thread"


# torch/utils/data/sampler.py, of a shuffled dataset of no samples
_NO_SAMPLES = "num_samples should be a positive integer value, but got num_samples=0"
EMPTY_DATASET = "Look at the folder and the filters from which the script makes its dataset."
_PACKAGES = {
    "PIL": "pillow", "bs4": "beautifulsoup4", "cv2": "opencv-python-headless", "skimage":
    "scikit-image", "sklearn": "scikit-learn", "yaml": "pyyaml",
}  # fmt: skip
"""Modules whose package goes by another name."""
_THERE = re.compile(r"FileExistsError: \[Errno 17\] File exists: '([^']+)'")
_MODULE = re.compile(r"No module named '([^']+)'")
_FILE = re.compile(r"No such file or directory: '([^']+)'")
_NO_GPU = (
    # torch/cuda/__init__.py and torch/serialization.py
    "torch not compiled with cuda enabled",
    "found no nvidia driver",
    "no cuda gpus are available",
    "no cuda-capable device is detected",
    "torch.cuda.is_available() is false",
    "no hip gpus are available",
    # aten/src/ATen/DeviceAccelerator.cpp
    "cannot access accelerator device when none is available",
    # lightning/pytorch/trainer/connectors/accelerator_connector.py
    "no supported gpu backend found",
    "cudaaccelerator can not run on your system",
)
_NO_NETWORK = (
    "name resolution",
    "name or service not known",
    "max retries exceeded",
    "urlopen error",
    "network is unreachable",
    "connection refused",
    "connection timed out",
    "proxyerror",
    "error downloading",  # torchvision
    # transformers, huggingface_hub, datasets
    "couldn't connect to",
    "couldn't reach",
    "cannot find the requested files in",
)
_NO_TERMINAL = ("inappropriate ioctl for device", "setupterm: could not find terminal")


def next_step(text: str) -> str:
    """What helps against an exception of a script that does not run here yet; empty if unknown.

    >>> next_step("ModuleNotFoundError: No module named 'cv2'")[:46]
    'Install opencv-python-headless for this Python'
    >>> next_step("KeyError: 'lr'")
    ''
    """
    lower = text.lower()
    module, file = _MODULE.search(text), _FILE.search(text)
    if module is not None:
        name = module[1].partition(".")[0]
        package = _PACKAGES.get(name, f"the package that has {name}")
        return (
            f"Install {package} for this Python, or add the folder that holds {name} to PYTHONPATH."
        )
    if file is not None:
        relative = "" if file[1].startswith("/") else ", which counts from the working folder"
        return f"Make the file, or give the script another path{relative}."
    there = _THERE.search(text)
    if there is not None:
        return (
            f"Move {there[1]} away, or give the script another path: an earlier start of it, also "
            "by batchadvisor, may have made that."
        )
    if _NO_SAMPLES in lower:
        return f"The dataset is empty. {EMPTY_DATASET}"
    if any(part in lower for part in _NO_GPU):
        return (
            "The script asks for a GPU, and torch sees none here (batchadvisor doctor says why): "
            "give it its own option for the CPU, or run it where a GPU is."
        )
    if any(part in lower for part in _NO_NETWORK):
        return (
            "The script needs the network: run it once alone where there is one, so that what it "
            "fetches is on disk, or give it a copy that is here."
        )
    if any(part in lower for part in _NO_TERMINAL):
        return (
            "The script asks its terminal, and its output goes to a file here: switch its display "
            "off, or let it test sys.stdout.isatty() first."
        )
    return ""


def known_failure(
    text: str,
    batch_size: int | None = None,
    shape: Sequence[int] = (),
    *,
    smaller_ran: bool = False,
) -> KnownFailure | None:
    """The failure that an exception's words tell of; `None` where they do not.

    Args:
        batch_size, shape, smaller_ran: see `kernel_limit`.

    >>> known_failure("DataLoader worker (pid 7) is killed by signal: Bus error.").what[:16]
    '/dev/shm is full'
    >>> known_failure("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED.") is None
    True
    """
    lower = text.lower()
    if _BUS_ERROR in lower or any(part in lower for part in _SHARED):
        return SHARED_MEMORY
    gathered = _GATHERED.search(lower)
    if gathered is not None:
        return _apart(*gathered.groups())
    limit = kernel_limit(text, batch_size, shape, smaller_ran=smaller_ran)
    if limit is None or not limit.why:
        return None if limit is None else TOO_LARGE_FOR_KERNELS
    below = "Stay below this size."
    if limit.largest:
        below = f"Take {limit.largest} or less, by these shapes."
    return KnownFailure(f"{TOO_LARGE_FOR_KERNELS.what}: {limit.why}", below)


def _apart(got: str, expected: str) -> KnownFailure | None:
    """Parts of an output that DataParallel cannot put together along axis 0."""
    pairs = zip(got.split(", "), expected.split(", "), strict=False)
    axis = next((axis for axis, (one, other) in enumerate(pairs) if one != other), None)
    if axis is None or axis == 0:
        return None
    return KnownFailure(
        f"DataParallel puts outputs together along axis 0, and the parts of one differ in axis "
        f"{axis} ([{got}] and [{expected}]): its batch, or a length of its own, lies there",
        "Return it with the batch in axis 0, or take a size, and drop_last=True, by which all GPUs "
        "get as many samples.",
    )


def known_refusal(
    detail: str, aside: str = "", *, batch_size: int | None, device_bytes: int | None
) -> KnownFailure | None:
    """Finds who refused memory where the size did not ask for too much; else `None`.

    Args:
        aside: the batch that was worked on, if not one of the size.
        device_bytes: the memory of the device, where the words do not tell.
    """
    if aside:
        return KnownFailure(worked_aside(aside), ASIDE)
    if _PINNING in detail:
        return PINNED
    request = request_of(detail)
    if request is None:
        return None
    if request.is_taken():
        return KnownFailure(taken_by(request), TAKEN)
    if request.is_absurd(batch_size, device_bytes):
        return KnownFailure(
            f"{format_bytes(request.num_bytes)} were asked for at once", SCRIPTS_FAULT
        )
    return None


def failure_of(
    trial: Trial, device: DeviceInfo | None, *, smaller_ran: bool
) -> KnownFailure | None:
    """Finds the known cause of a trial's failure."""
    if trial.outcome != "out_of_memory":
        return known_failure(
            trial.detail, trial.batch_size, trial.largest_tensor, smaller_ran=smaller_ran
        )
    taken = "" if trial.aside else not_of_the_size(trial, device)
    if taken:
        return KnownFailure(taken, TAKEN)
    total = None if device is None else device.total_bytes
    return known_refusal(trial.detail, trial.aside, batch_size=trial.batch_size, device_bytes=total)


def not_the_size(measurements: Measurements) -> list[Finding]:
    """Refusals that have another cause than that a batch is too large for the device."""
    record = measurements.record
    known = {
        found.what: (found, trial)
        for trial in record.trials
        if trial.outcome == "out_of_memory" and not trial.ran and trial.says_of_size
        if (found := failure_of(trial, record.device, smaller_ran=False)) is not None
    }
    return [
        Finding(
            rule="memory.not_the_size",
            severity="warning",
            message=f"{measurements.named(trial.batch_size)}: {found.what}",
            evidence=(Evidence(metric="batch size", value=trial.batch_size),),
            remedy=found.remedy,
        )
        for found, trial in known.values()
    ]
