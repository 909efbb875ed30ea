"""The worker process: runs the user's script as `__main__`, steered.

Started by process/supervisor.py as `python -c "...; main(READ_FD, WRITE_FD)"`.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import os
import select
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..process.channel import Channel, ChannelClosedError
from ..process.messages import Hello, Ready
from ..process.orders import WorkOrder, decode_to_worker
from .run_script import become_the_script, die_with_parent, run_script, steer

if TYPE_CHECKING:
    from .trial_runner import TrialRunner


def main(read_fd: int, write_fd: int) -> None:
    """Runs one script until it ends, raises, or the supervisor ends this process."""
    started_s = time.monotonic()
    die_with_parent()
    if _is_left_alone(read_fd):  # killed before this process could ask to die with it
        os._exit(1)
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    for descriptor in (read_fd, write_fd):
        os.set_inheritable(descriptor, False)
    channel = Channel(read_fd, write_fd)
    order = _order(channel)
    become_the_script(order)
    if order.ahead:
        import_ahead()
        channel.send(Ready())
        order = _order(channel)
        started_s = time.monotonic()
    from .versions import versions

    channel.send(Hello(versions=versions()))
    import_ahead()  # before memory is limited: what is left may be too little for an import
    if order.large_fake:
        from ..fake_step.large_parameters import LargeParameters

        LargeParameters().start()
    steer(
        order,
        channel,
        started_s,
        lambda door: run_script(order, door),
        look_for_ranks=lambda runner: _look_for_ranks(channel, order, runner),
    )


def _is_left_alone(read_fd: int) -> bool:
    """Whether the supervisor's end of the channel is closed."""
    ends = select.poll()
    ends.register(read_fd, select.POLLHUP)
    return any(event & select.POLLHUP for _, event in ends.poll(0))


def import_ahead() -> None:
    """Imports all that `steer` needs, torch above all; nothing is patched and no device asked.

    And sympy, which the first optimizer imports. The rest of what it imports, torch._dynamo, reads
    its settings then, and a script may set them first.
    """
    from ..devices import torch_devices  # noqa: F401
    from ..distributed import spawned, started_programs  # noqa: F401
    from ..doors import loader_or_keras  # noqa: F401
    from . import (  # noqa: F401
        file_effects,
        made_folders,
        patches,
        supervisor_line,
        trial_runner,
        versions,
    )

    with contextlib.suppress(ImportError):
        importlib.import_module("sympy")


def _look_for_ranks(channel: Channel, order: WorkOrder, runner: TrialRunner) -> Callable[[], bool]:
    """Ranks that the script starts are steered; gives whether it wanted some and started none."""
    if order.lockstep is not None or not order.traits.may_start_ranks:
        return bool
    from ..distributed.spawned import steer_spawned
    from ..distributed.started_programs import steer_programs

    steer_programs(channel, order, lambda: runner.has_loop, runner.join)
    return steer_spawned(channel, lambda: runner.has_loop)


def _order(channel: Channel) -> WorkOrder:
    try:
        order = decode_to_worker(channel.receive_line() or b"")
    except ChannelClosedError:
        os._exit(0)  # the supervisor is gone
    assert isinstance(order, WorkOrder)
    return order
