"""Ranks that the script starts itself: `torch.multiprocessing.spawn` and what builds on it.

The script's main process only waits for its ranks, so it is the ranks that are steered. Each gets
what `torch.multiprocessing` was to run wrapped in `SteeredRank`, which connects it to the
supervisor before the script's own function begins.
"""

from __future__ import annotations

import faulthandler
import functools
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import msgspec
import torch.multiprocessing

from ..process.channel import Channel, ChannelClosedError
from ..process.messages import Spawning
from ..process.orders import WorkOrder, decode_to_worker
from ..worker.run_script import steer
from .messages import dial_starter


class SteeredRank:
    """Runs the script's function in one rank, steered. Goes through pickle to a new process.

    Args:
        function: of the script, called with the rank and its arguments.
        order: of the process that starts the ranks, as JSON, with the way to the coordinator.
    """

    def __init__(self, function: Callable[..., Any], order: bytes) -> None:
        self.function = function
        self.order = order

    def __call__(self, index: int, *args: Any) -> None:
        """Returns only where no rank trained anything: else the supervisor ends the process."""
        started_s = time.monotonic()
        faulthandler.register(signal.SIGUSR1, all_threads=True)
        order = msgspec.json.decode(self.order, type=WorkOrder)
        assert order.lockstep is not None
        lockstep = msgspec.structs.replace(order.lockstep, rank=index)
        order = msgspec.structs.replace(order, lockstep=lockstep)
        channel = dial_starter(lockstep)
        try:
            steer(
                order,
                channel,
                started_s,
                lambda _: self.function(index, *args),
                may_go_on=True,
            )
        except ChannelClosedError:
            os._exit(0)  # the supervisor is gone or has enough; no clean-up code of the script


def steer_spawned(channel: Channel, in_loop: Callable[[], bool]) -> Callable[[], bool]:
    """From now on, ranks that this process starts through torch.multiprocessing are steered.

    Processes that train nothing (they prepare data, say) are no ranks: the supervisor lets them
    end, and what this process starts after them may be the ranks.

    Args:
        channel: to the supervisor, who is asked for the way to the coordinator.
        in_loop: whether this process is in its training loop already; then nothing is taken over.

    Returns:
        Whether it asked for no process at all, as a script does that counts GPUs where there is
        none.
    """
    module = sys.modules["torch.multiprocessing.spawn"]
    native = module.start_processes
    pid = os.getpid()
    used = none = False

    @functools.wraps(native)
    def start_processes(fn: Any, args: Any = (), nprocs: int = 1, *more: Any, **named: Any) -> Any:
        nonlocal used, none
        none = none or nprocs < 1
        if used or nprocs < 1 or in_loop() or os.getpid() != pid:
            return native(fn, args, nprocs, *more, **named)
        used = True
        channel.send(Spawning(world_size=nprocs))
        plan = decode_to_worker(channel.receive_line() or b"")
        assert isinstance(plan, WorkOrder)
        steered = SteeredRank(fn, msgspec.json.encode(plan))
        context = native(steered, args, nprocs, *more, **named)
        used = context is not None  # those that were waited for were no ranks
        return context

    module.start_processes = start_processes  # type: ignore[attr-defined]
    torch.multiprocessing.start_processes = start_processes  # type: ignore[attr-defined]
    return lambda: none
