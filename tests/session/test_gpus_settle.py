"""What a discovery shows of the GPUs decides what the processes after it see."""

from types import SimpleNamespace

import msgspec
import pytest
from batchadvisor.probes.messages import GpuInUse
from batchadvisor.session.gpu_choice import Chosen
from batchadvisor.session.options import RunOptions
from batchadvisor.session.target import Target
from batchadvisor.session.workers import Workers

CUDA = "CUDA_VISIBLE_DEVICES"
REORDERED = Chosen(
    kind="cuda", variables={CUDA: "GPU-2,GPU-0,GPU-1"}, num_visible=3, narrowed={CUDA: "GPU-2"},
    reordered=True,
)  # fmt: skip
AS_THEY_ARE = Chosen(kind="cuda", num_visible=3, narrowed={CUDA: "0"})


class OnPaper(Workers):
    """Starts nothing; notes what each process would see."""

    def __init__(self, gpus, used, tmp_path):
        journal = SimpleNamespace(
            record=SimpleNamespace(trials=(), discovery=None),
            store=SimpleNamespace(folder=tmp_path),
        )
        display = SimpleNamespace(note=lambda _: None)
        target = Target(device="cuda", data_limit_bytes=None, gpus=gpus)
        super().__init__(RunOptions(script="a.py"), target, journal, display)
        self._used = used
        self.seen = []

    def _spawn(self):
        self.seen.append(self._target.gpus.variables)
        in_use = tuple(GpuInUse(index=one) for one in self._used)
        return SimpleNamespace(discover=lambda: (None, None), in_use=in_use)

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
