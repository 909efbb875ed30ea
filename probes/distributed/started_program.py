"""One rank that the script started as a program; see started_programs.py."""

from __future__ import annotations

import faulthandler
import signal
import sys
import time
from pathlib import Path

import msgspec

from ..process.orders import WorkOrder
from ..worker.run_script import become_the_script, die_with_parent, run_script, steer
from .messages import dial_starter


def main() -> None:
    """Runs one rank, steered; called by the hook with the plan, then what is to be run."""
    started_s = time.monotonic()
    die_with_parent()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    plan, kind, script, *arguments = sys.argv[1:]
    number, _, path = plan.partition(":")
    order = msgspec.json.decode(Path(path).read_bytes(), type=WorkOrder)
    assert order.lockstep is not None
    lockstep = msgspec.structs.replace(order.lockstep, rank=int(number))
    order = msgspec.structs.replace(
        order,
        lockstep=lockstep,
        script=script,
        arguments=tuple(arguments),
        module=kind == "module",
    )
    become_the_script(order)
    channel = dial_starter(lockstep)
    steer(order, channel, started_s, lambda door: run_script(order, door))
