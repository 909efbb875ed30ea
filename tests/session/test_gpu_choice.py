"""Which GPUs a worker sees: by `--device`, the user's variables, the driver's list, a discovery."""

from types import SimpleNamespace

import msgspec
import pytest
from batchadvisor.errors import UsageError
from batchadvisor.probes.devices.gpu_in_use import GpuInUse
from batchadvisor.probes.devices.visible_gpus import visible
from batchadvisor.probes.nvml.gpus import NvmlDevice
from batchadvisor.session.setup.gpu_choice import Machine, choose_gpus, settled, several_gpus
from batchadvisor.session.setup.options import RunOptions
from batchadvisor.session.setup.target import Target
from batchadvisor.session.workers.worker_pool import WorkerPool

from ..on_paper import record_of

CUDA, HIP, ROCR = "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"
GIB = 1024**3
PCI = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def gpu(index, name="A100", free=80, **more):
    return NvmlDevice(index=index, uuid=f"GPU-{index}abc", name=name, free_bytes=free * GIB, **more)


def machine(*gpus):
    return Machine(gpus=gpus)


PART_A = NvmlDevice(index=0, uuid="MIG-aa11", name="A100 MIG 3g.40gb")
PART_B = NvmlDevice(index=0, uuid="MIG-ab22", name="A100 MIG 3g.40gb")
NONE = Machine(refused="NVML Shared Library Not Found", num_by_torch=0)
ONE = machine(gpu(0))
TWO = machine(gpu(0), gpu(1))
FOUR = machine(*(gpu(index) for index in range(4)))
BUSY = machine(gpu(0, free=10), gpu(1, free=20), gpu(2, free=79))  # others work on 0 and 1
UNLIKE = machine(gpu(0, "T4", free=15), gpu(1, "A100", free=79))
MIG = machine(gpu(0, mig_enabled=True, instances=(PART_A, PART_B)))
MIXED = machine(gpu(0, mig_enabled=True, instances=(PART_A,)), gpu(1))
EMPTY_MIG = machine(gpu(0, mig_enabled=True))
JETSON = Machine(refused="NVML Shared Library Not Found", num_by_torch=1)
ROCM = Machine(refused="NVML Shared Library Not Found", num_by_torch=4, hip=True)

TABLE = [
    # option, variables, machine -> kind, variables that are set, GPUs that the worker sees
    ("auto", {}, NONE, "auto", {}, None),
    ("auto", {}, ONE, "cuda", {}, 1),
    ("auto", {}, FOUR, "cuda", {}, 4),
    ("cuda", {}, FOUR, "cuda", {}, 4),
    ("cuda:all", {}, FOUR, "cuda", {}, 4),
    # Without a wish of the user's the one with the most free memory comes first, and all stay.
    ("auto", {}, BUSY, "cuda", {CUDA: "GPU-2abc,GPU-0abc,GPU-1abc"}, 3),
    ("cuda:all", {}, BUSY, "cuda", {}, 3),
    ("auto", {}, UNLIKE, "cuda", {CUDA: "GPU-1abc,GPU-0abc"}, 2),
    ("auto", PCI, UNLIKE, "cuda", {CUDA: "GPU-1abc,GPU-0abc"}, 2),
    # What the user says stays as it is.
    ("auto", {CUDA: "1"}, BUSY, "cuda", {}, 1),
    ("auto", {CUDA: " 1 , 0"}, BUSY, "cuda", {}, 2),
    ("auto", {CUDA: "GPU-1abc"}, BUSY, "cuda", {}, 1),
    ("auto", {CUDA: "GPU-1"}, BUSY, "cuda", {}, 1),
    ("auto", {CUDA: "GPU-1,GPU-0abc"}, BUSY, "cuda", {}, 2),
    ("auto", {CUDA: "2,0", **PCI}, UNLIKE, UsageError, "the driver counts 2 from 0", None),
    ("auto", {CUDA: "1,0", **PCI}, UNLIKE, "cuda", {}, 2),
    # A list ends at what is not there.
    ("auto", {CUDA: "0,7,1"}, BUSY, "cuda", {}, 1),
    ("auto", {CUDA: "0,-1,1"}, BUSY, "cuda", {}, 1),
    ("auto", {CUDA: "1,x"}, BUSY, "cuda", {}, 1),
    ("auto", {CUDA: "GPU-1abc,0"}, BUSY, "cuda", {}, 1),
    ("auto", {CUDA: "1gpu,2"}, BUSY, "cuda", {}, 2),
    # No GPU on purpose is the CPU; by mistake it is an error.
    ("auto", {CUDA: ""}, FOUR, "cpu", {}, 0),
    ("auto", {CUDA: "-1"}, FOUR, "cpu", {}, 0),
    ("auto", {CUDA: "NoDevFiles"}, FOUR, "cpu", {}, 0),
    ("cuda", {CUDA: ""}, FOUR, UsageError, "CUDA_VISIBLE_DEVICES='' hides all", None),
    ("cuda:0", {CUDA: ""}, FOUR, UsageError, "hides all", None),
    ("auto", {CUDA: "4"}, FOUR, UsageError, "the driver counts 4 from 0", None),
    ("auto", {CUDA: "1,1"}, FOUR, UsageError, "stands there twice", None),
    ("auto", {CUDA: "GPU-9"}, FOUR, UsageError, "no GPU here has that UUID", None),
    ("auto", {CUDA: "GPU-"}, FOUR, UsageError, "several UUIDs begin so", None),
    # A number counts the visible ones.
    ("cuda:3", {}, FOUR, "cuda", {CUDA: "3"}, 1),
    ("cuda:0", {CUDA: "2,3"}, FOUR, "cuda", {CUDA: "2"}, 1),
    ("cuda:1", {CUDA: "GPU-3,GPU-2"}, FOUR, "cuda", {CUDA: "GPU-2"}, 1),
    ("cuda:0", {CUDA: "3"}, FOUR, "cuda", {}, 1),
    ("cuda:1", {CUDA: "1,0"}, UNLIKE, "cuda", {CUDA: "0"}, 1),
    ("cuda:4", {}, FOUR, UsageError, r"Visible: 0 \(A100\), 1 \(A100\)", None),
    ("cuda:2", {CUDA: "2,3"}, FOUR, UsageError, "by CUDA_VISIBLE_DEVICES='2,3'", None),
    ("cuda:x", {}, FOUR, UsageError, "has that UUID", None),
    # A UUID must be one that the user allows.
    ("cuda:GPU-2abc", {}, FOUR, "cuda", {CUDA: "GPU-2abc"}, 1),
    ("cuda:GPU-2", {}, FOUR, "cuda", {CUDA: "GPU-2abc"}, 1),
    ("cuda:GPU-2abc", {CUDA: "1,2"}, FOUR, "cuda", {CUDA: "GPU-2abc"}, 1),
    ("cuda:GPU-0abc", {CUDA: "1,2"}, FOUR, UsageError, "your variables exclude that GPU", None),
    ("cuda:GPU-0abc", {CUDA: "GPU-1abc"}, FOUR, UsageError, "exclude that GPU", None),
    ("cuda:GPU-1abc", {CUDA: "0"}, UNLIKE, UsageError, "the fastest first", None),
    ("cuda:GPU-1abc", {CUDA: "0", **PCI}, UNLIKE, UsageError, "exclude that GPU", None),
    ("cuda:GPU-1abc", {}, UNLIKE, "cuda", {CUDA: "GPU-1abc"}, 1),
    # Parts of a GPU.
    ("auto", {}, MIG, "cuda", {}, 1),
    ("auto", {CUDA: "MIG-ab"}, MIG, "cuda", {}, 1),
    ("auto", {CUDA: "MIG-aa11,MIG-ab22"}, MIG, "cuda", {}, 2),
    ("cuda:1", {CUDA: "MIG-aa11,MIG-ab22"}, MIG, "cuda", {CUDA: "MIG-ab22"}, 1),
    ("cuda:MIG-ab22", {}, MIG, "cuda", {CUDA: "MIG-ab22"}, 1),
    ("auto", {CUDA: "MIG-GPU-0abc/1/0"}, MIG, "cuda", {}, 1),
    ("auto", {CUDA: "0"}, MIG, "cuda", {}, 1),
    ("auto", {}, MIXED, "cuda", {}, 1),
    ("auto", {CUDA: "MIG-99"}, MIG, UsageError, "'MIG-99' ends the list: no GPU here", None),
    ("cuda:MIG-99", {}, MIG, UsageError, "has that UUID", None),
    ("cuda:GPU-0abc", {}, MIG, UsageError, "exclude that GPU|partitioned", None),
    ("auto", {}, EMPTY_MIG, UsageError, "every GPU is partitioned, and none has a part", None),
    # No NVML: torch counts.
    ("auto", {CUDA: ""}, NONE, "cpu", {}, 0),
    ("cuda", {}, NONE, UsageError, "torch sees none, and NVML Shared Library Not Found", None),
    ("cuda", {CUDA: ""}, NONE, UsageError, "CUDA_VISIBLE_DEVICES='' hides all", None),
    ("cuda", {}, JETSON, "cuda", {}, 1),
    ("cuda:0", {}, JETSON, "cuda", {}, 1),
    ("cuda:1", {}, JETSON, UsageError, "there is no such GPU: torch sees 1", None),
    ("cuda:all", {}, ROCM, "cuda", {}, 4),
    ("cuda:2", {}, ROCM, "cuda", {HIP: "2"}, 1),
    ("cuda:1", {HIP: "5,6,7,4"}, ROCM, "cuda", {HIP: "6"}, 1),
    ("cuda:1", {CUDA: "5,6,7,4"}, ROCM, "cuda", {CUDA: "6"}, 1),
    ("cuda:1", {ROCR: "4,5,6,7"}, ROCM, "cuda", {HIP: "1"}, 1),
    ("cuda:4", {HIP: "5,6,7,4"}, ROCM, UsageError, "by HIP_VISIBLE_DEVICES='5,6,7,4'", None),
    ("auto", {HIP: "-1"}, ROCM, "cpu", {}, 0),
    ("auto", {ROCR: ""}, ROCM, "cpu", {}, 0),
    ("auto", {HIP: "-1"}, NONE, "auto", {}, None),  # nobody reads it there
    ("cuda:GPU-1", {}, ROCM, UsageError, "no UUID can be looked up", None),
]


@pytest.mark.parametrize(("option", "variables", "there", "kind", "changes", "num"), TABLE)
def test_choice(option, variables, there, kind, changes, num):
    if kind is UsageError:
        with pytest.raises(UsageError, match=changes) as error:
            choose_gpus(option, variables, there)
        assert f"--device {option}" in str(error.value)
        assert error.value.remedy
        return
    chosen = choose_gpus(option, variables, there)
    assert (chosen.kind, chosen.variables, chosen.num_visible) == (kind, changes, num)


def _physical(there, environment):
    """UUIDs that a process with these variables sees."""
    return {device.uuid for device in visible(environment, there.gpus).gpus if device is not None}


@pytest.mark.parametrize("option", ["auto", "cuda", "cuda:0", "cuda:1", "cuda:GPU-1abc"])
@pytest.mark.parametrize("value", ["0", "1", "2,1", "1,2,7", "GPU-2,GPU-1", "0,1,2", "GPU-1abc"])
@pytest.mark.parametrize("there", [BUSY, FOUR])
def test_never_a_gpu_that_the_user_excludes(option, value, there):
    allowed = _physical(there, {CUDA: value})
    try:
        chosen = choose_gpus(option, {CUDA: value}, there)
    except UsageError:
        return
    for variables in (chosen.variables, chosen.narrowed):
        seen = _physical(there, {CUDA: value, **variables})
        assert seen
        assert seen <= allowed


REORDERED = {CUDA: "GPU-2abc,GPU-0abc,GPU-1abc"}


@pytest.mark.parametrize(
    ("option", "variables", "there", "used", "then", "again"),
    [
        ("auto", {CUDA: "2,3"}, FOUR, [0], {CUDA: "2"}, False),
        ("auto", {}, BUSY, [0], {CUDA: "GPU-2abc"}, False),
        *(("auto", {}, FOUR, used, {}, False) for used in ([0, 1], [0, 1, 2, 3], [1], [])),
        # The freest was put first; a script that says cuda:1 means another GPU.
        ("auto", {}, BUSY, [1], {}, True),
        ("auto", {}, BUSY, [0, 1, 2], REORDERED, False),
        ("auto", {}, BUSY, [], REORDERED, False),  # it is not known
        ("cuda:all", {}, FOUR, [0], {}, False),
        ("auto", {CUDA: ""}, FOUR, [], {}, False),
    ],
)
def test_what_the_script_uses_decides_what_stays_visible(
    option, variables, there, used, then, again
):
    chosen, starts_again = settled(choose_gpus(option, variables, there), used)
    assert (chosen.variables, starts_again) == (then, again)
    assert settled(chosen, used) == (chosen, False)


class OnPaper(WorkerPool):
    """Starts nothing; notes what each process would see."""

    def __init__(self, gpus, used, writer):
        target = Target(device="cuda", data_limit_bytes=None, gpus=gpus)
        display = SimpleNamespace(note=lambda _: None)
        super().__init__(RunOptions(script="a.py"), target, writer, display)
        self._used = used
        self.seen = []

    def spawn(self):
        self.seen.append(self._target.gpus.variables)
        in_use = tuple(GpuInUse(index=index) for index in self._used)
        return SimpleNamespace(discover=lambda _: (None, None), in_use=in_use, order=None)

    def _stand_by(self, first):
        pass

    def _found(self, *_):
        pass


class Journal(SimpleNamespace):
    """A record and what becomes of it."""

    keep = False

    def change(self, **changes):
        self.record = msgspec.structs.replace(self.record, **changes)


@pytest.mark.parametrize(
    ("there", "used", "seen"),
    [
        (FOUR, [0], [{}, {CUDA: "0"}]),
        (BUSY, [0], [REORDERED, {CUDA: "GPU-2abc"}]),
        (FOUR, [0, 1], [{}, {}]),
        (BUSY, [1], [REORDERED, {}, {}]),  # the discovery is made again
    ],
)
def test_what_each_process_of_a_run_sees(there, used, seen, tmp_path):
    record = msgspec.structs.replace(record_of(), discovery=None)
    writer = Journal(record=record, store=SimpleNamespace(folder=tmp_path))
    workers = OnPaper(choose_gpus("auto", {}, there), used, writer)
    workers.start()
    workers.start()
    assert workers.seen == seen


@pytest.mark.parametrize(
    ("kind", "uuid", "now_gib", "written_gib"),
    [
        ("cuda", "GPU-1", 50, 50),  # a neighbour came
        ("cuda", "GPU-1", 79.9, 80),  # a context more or less
        ("cuda", "GPU-2", 50, 80),
        ("cpu", None, 50, 80),
    ],
)
def test_each_process_looks_at_the_capacity_again(tmp_path, kind, uuid, now_gib, written_gib):
    record = record_of()
    first = msgspec.structs.replace(record.device, kind=kind, uuid=uuid and "GPU-1")
    record = msgspec.structs.replace(record, device=first)
    writer = Journal(record=record, store=SimpleNamespace(folder=tmp_path))
    notes = []
    target = Target(device="cuda", data_limit_bytes=None)
    display = SimpleNamespace(note=notes.append)
    workers = WorkerPool(RunOptions(script="a.py"), target, writer, display)
    workers._capacity_now(
        msgspec.structs.replace(first, uuid=uuid, capacity_bytes=int(now_gib * GIB))
    )
    assert writer.record.device.capacity_bytes == written_gib * GIB
    assert bool(notes) is (written_gib != 80)


class TestSeveral:
    def test_numbers_count_the_visible_ones(self):
        gpus = several_gpus("--gpus all", {CUDA: "3,1"}, FOUR)
        assert [(number, device.index) for number, device in gpus] == [("0", 3), ("1", 1)]

    def test_unlike_gpus_without_an_order(self):
        assert len(several_gpus("--gpus all", {}, UNLIKE)) == 2
        with pytest.raises(UsageError, match="the fastest first") as error:
            several_gpus("--gpus all", {CUDA: "1"}, UNLIKE)
        assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in error.value.remedy
        assert several_gpus("--gpus all", {CUDA: "1", **PCI}, UNLIKE)[0][1].name == "A100"

    def test_parts(self):
        gpus = several_gpus("--gpus all", {CUDA: "MIG-ab22,MIG-aa11"}, MIG)
        assert [device.uuid for _, device in gpus] == ["MIG-ab22", "MIG-aa11"]

    def test_none(self):
        with pytest.raises(UsageError, match="--gpus all: no GPU is visible"):
            several_gpus("--gpus all", {CUDA: ""}, FOUR)
