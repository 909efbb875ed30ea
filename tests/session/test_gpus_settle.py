"""What a discovery shows of the GPUs decides what the processes after it see."""

from types import SimpleNamespace

import msgspec
import pytest
from batchadvisor.probes.devices.gpu_in_use import GpuInUse
from batchadvisor.session.setup.gpu_choice import Chosen
from batchadvisor.session.setup.options import RunOptions
from batchadvisor.session.setup.target import Target
from batchadvisor.session.workers.worker_pool import WorkerPool

from ..on_paper import record_of

CUDA = "CUDA_VISIBLE_DEVICES"
REORDERED = Chosen(
    kind="cuda", variables={CUDA: "GPU-2,GPU-0,GPU-1"}, num_visible=3, narrowed={CUDA: "GPU-2"},
    reordered=True,
)  # fmt: skip
AS_THEY_ARE = Chosen(kind="cuda", num_visible=3, narrowed={CUDA: "0"})


class OnPaper(WorkerPool):
    """Starts nothing; notes what each process would see."""

    def __init__(self, gpus, used, tmp_path):
        writer = SimpleNamespace(
            record=msgspec.structs.replace(record_of(), discovery=None),
            store=SimpleNamespace(folder=tmp_path),
            keep=False,
        )
        display = SimpleNamespace(note=lambda _: None)
        target = Target(device="cuda", data_limit_bytes=None, gpus=gpus)
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


@pytest.mark.parametrize(
    ("gpus", "used", "seen"),
    [
        # One: it is pinned from the second process on.
        (AS_THEY_ARE, [0], [{}, {CUDA: "0"}]),
        (REORDERED, [0], [REORDERED.variables, {CUDA: "GPU-2"}]),
        # Several, or a number in the script: all stay visible.
        (AS_THEY_ARE, [0, 1, 2], [{}, {}]),
        (AS_THEY_ARE, [1], [{}, {}]),
        (AS_THEY_ARE, [], [{}, {}]),
        # The order was ours, and the script means numbers: the discovery is made again.
        (REORDERED, [1], [REORDERED.variables, {}, {}]),
        (REORDERED, [0, 1, 2], [REORDERED.variables, REORDERED.variables]),
        (msgspec.structs.replace(AS_THEY_ARE, narrowed={}), [0], [{}, {}]),
    ],
)
def test_what_each_process_sees(gpus, used, seen, tmp_path):
    workers = OnPaper(gpus, used, tmp_path)
    workers.start()
    workers.start()
    assert workers.seen == seen


class Journal(SimpleNamespace):
    """A record and what becomes of it."""

    def change(self, **changes):
        self.record = msgspec.structs.replace(self.record, **changes)


GIB = 1024**3


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
    writer = Journal(
        record=msgspec.structs.replace(record, device=first),
        store=SimpleNamespace(folder=tmp_path),
        keep=False,
    )
    notes = []
    target = Target(device="cuda", data_limit_bytes=None)
    display = SimpleNamespace(note=notes.append)
    workers = WorkerPool(RunOptions(script="a.py"), target, writer, display)
    workers._capacity_now(
        msgspec.structs.replace(first, uuid=uuid, capacity_bytes=int(now_gib * GIB))
    )
    assert writer.record.device.capacity_bytes == written_gib * GIB
    assert bool(notes) is (written_gib != 80)
