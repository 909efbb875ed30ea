"""The worker process: runs the user's script as `__main__`, steered.

Started by supervisor.py as `python -c "...; main(READ_FD, WRITE_FD)"`.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import time

from .messages import Channel, ChannelClosedError, Hello, Ready, WorkOrder, decode_to_worker
from .steered import become_the_script, die_with_parent, import_ahead, run_script, steer


def main(read_fd: int, write_fd: int) -> None:
    """Runs one script until it ends, raises, or the supervisor ends this process."""
    started_s = time.monotonic()
    die_with_parent()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    for one in (read_fd, write_fd):
        os.set_inheritable(one, False)
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
    steer(order, channel, started_s, lambda steering: run_script(order, steering))


def _order(channel: Channel) -> WorkOrder:
    try:
        order = decode_to_worker(channel.receive_line() or b"")
    except ChannelClosedError:
        os._exit(0)  # the supervisor is gone
    assert isinstance(order, WorkOrder)
    return order
