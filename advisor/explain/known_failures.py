"""Failures whose cause their own words tell, and what helps against each."""

from __future__ import annotations

import re

import msgspec


class KnownFailure(msgspec.Struct, frozen=True):
    """What an exception says went wrong.

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
TOO_LARGE = KnownFailure(
    "no kernel takes tensors of this size",
    "Smaller sizes ran; stay below this one.",
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
_LARGE = (
    # cuDNN, of tensors beyond its 32-bit indices: pytorch/pytorch issues 3038, 4107
    "cudnn_status_not_supported",
    # aten/src/ATen/native: checks of canUse32BitIndexMath and of int32 strides
    "too large for 32-bit indexing",
    "canuse32bitindexmath",
    "integer out of range",
)


# torch/utils/data/sampler.py, of a shuffled dataset of no samples
_NO_SAMPLES = "num_samples should be a positive integer value, but got num_samples=0"
EMPTY_DATASET = "Look at the folder and the filters from which the script makes its dataset."
_PACKAGES = {
    "PIL": "pillow", "bs4": "beautifulsoup4", "cv2": "opencv-python-headless", "skimage":
    "scikit-image", "sklearn": "scikit-learn", "yaml": "pyyaml",
}  # fmt: skip
"""Modules whose package goes by another name."""
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
        return f"Install {package} for this Python, or start in the folder where {name} is."
    if file is not None:
        relative = "" if file[1].startswith("/") else ", which counts from the working folder"
        return f"Make the file, or give the script another path{relative}."
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


def known_failure(text: str, *, smaller_ran: bool = False) -> KnownFailure | None:
    """The failure that an exception's words tell of; `None` where they do not.

    Args:
        smaller_ran: a smaller size ran; without that a kernel may refuse anything.

    >>> known_failure("DataLoader worker (pid 7) is killed by signal: Bus error.").what[:16]
    '/dev/shm is full'
    >>> known_failure("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED.") is None
    True
    """
    lower = text.lower()
    if _BUS_ERROR in lower or any(part in lower for part in _SHARED):
        return SHARED_MEMORY
    if smaller_ran and any(part in lower for part in _LARGE):
        return TOO_LARGE
    return None
