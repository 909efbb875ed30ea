"""Training scripts with planted truths, and what a bare timed loop finds about them."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from .allocator import MIB
from .device import Graph

NUM_BARE_STEPS = 60


@dataclass(frozen=True, kw_only=True)
class Script:
    """What one step costs, by batch size.

    Attributes:
        native: its own batch size.
        device_ms: of all kernels together.
        host_ms: what the host computes to queue them.
        fetch_ms: the loader's time for a batch.
        copy_ms: of the batch to the device, on the stream of the kernels.
        item_every: steps after which the host reads a number; 0 for never.
        kernels: of a step.
        graph: the step is a captured graph, one for each size.
        watts: that the kernels take; what the supply says where it is `None`.
        blocks: of each kernel's grid, of 100 that fill the device.
        fixed_bytes, sample_bytes: of the model, and of what a step holds for each sample.
        jump: from this size on, so many bytes more: the workspace of a library.
        refusal: what a library says instead of the allocator's words.
    """

    native: int = 32
    device_ms: Callable[[int], float] = lambda size: 10 + size / 4
    host_ms: Callable[[int], float] = lambda _: 5.0
    fetch_ms: Callable[[int], float] = lambda _: 0.0
    copy_ms: Callable[[int], float] = lambda _: 0.0
    item_every: int = 0
    kernels: int = 5
    graph: bool = False
    watts: Callable[[int], float | None] = lambda _: None
    blocks: int = 400
    fixed_bytes: int = 1024 * MIB
    sample_bytes: int = 32 * MIB
    jump: tuple[int, int] = (0, 0)
    refusal: str = ""

    def step_bytes(self, size):
        """What a step holds besides the model."""
        size_jump, jump_bytes = self.jump
        return size * self.sample_bytes + (jump_bytes if size >= size_jump else 0)

    def largest(self, room_bytes):
        """The largest size that a process alone could run in so much memory."""
        room_bytes -= self.fixed_bytes
        top = int(room_bytes // self.sample_bytes)
        return next(size for size in range(top, 0, -1) if self.step_bytes(size) <= room_bytes)


class Loop:
    """The script in a process: it fetches, then it steps."""

    def __init__(self, script, gpu):
        self.script, self.gpu = script, gpu
        self._num_steps = 0
        gpu.new_process()
        gpu.allocate(script.fixed_bytes)

    def fetch(self, size):
        """The loader's turn; seconds that it took."""
        clock, script = self.gpu.clock, self.script
        began_ns = clock.now_ns
        clock.pass_ms(script.fetch_ms(size))
        if self.gpu.tape is not None and clock.now_ns > began_ns:
            self.gpu.tape.fetch(began_ns, clock.now_ns)
        return (clock.now_ns - began_ns) / 1e9

    def step(self, size):
        """Forward, backward, optimizer: all of it queued."""
        gpu, script = self.gpu, self.script
        block, refused = None, False
        try:
            if script.graph:
                gpu.capture(size, script.step_bytes(size))
            else:
                block = gpu.allocate(script.step_bytes(size))
        except torch.OutOfMemoryError:
            refused = bool(script.refusal)
            if not refused:
                raise
        if refused:  # by a library, whose words no line of Python says
            (_ for _ in ()).throw(RuntimeError(script.refusal))
        copy_ms = script.copy_ms(size)
        if copy_ms:
            gpu.copy(copy_ms, num_bytes=size * 2**20)
        self._queue(size)
        self._num_steps += 1
        if script.item_every and self._num_steps % script.item_every == 0:
            gpu.item()
        if block is not None:
            gpu.free(block)

    def _queue(self, size):
        gpu, script = self.gpu, self.script
        device_ms, host_ms = script.device_ms(size), script.host_ms(size)
        if script.graph:
            self._compute(host_ms)
            gpu.replay(Graph([device_ms / script.kernels] * script.kernels))
            return
        for _ in range(script.kernels):
            self._compute(host_ms / script.kernels)
            gpu.launch(device_ms / script.kernels, watts=script.watts(size))

    def _compute(self, ms):
        clock = self.gpu.clock
        began_ns = clock.now_ns
        clock.pass_ms(ms)
        if self.gpu.tape is not None:
            self.gpu.tape.operator(began_ns, clock.now_ns)


@dataclass(frozen=True)
class Truth:
    """What a machine counts about a bare loop: device seconds from step to step, mean power."""

    size: int
    step_s: float
    watts: float

    @property
    def samples_per_s(self):
        return self.size / self.step_s

    @property
    def samples_per_joule(self):
        return self.samples_per_s / self.watts


def truth_of(script, gpu, size):
    """A bare loop at one size on a machine of its own; nothing of this project runs in it."""
    loop = Loop(script, gpu)
    every = script.item_every or 1
    num_steps = -(-NUM_BARE_STEPS // every) * every

    def steps():
        for _ in range(num_steps):
            loop.fetch(size)
            loop.step(size)
        gpu.synchronize()
        return gpu.clock.now_ns

    began_ns = steps()
    ended_ns = steps()
    joules = gpu.supply.energy_j(ended_ns) - gpu.supply.energy_j(began_ns)
    lasted_s = (ended_ns - began_ns) / 1e9
    return Truth(size, lasted_s / num_steps, joules / lasted_s)
