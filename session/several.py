"""`run --gpus` and `run --device cpu:1,cpu:1`: checks, the runs, the answer."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from ..advisor.advise import advise
from ..errors import BatchAdvisorError, UsageError
from ..records import Goal
from ..reports.devices import INTERRUPTED
from .answer import next_command
from .device_choice import chosen_gpus, logical_devices
from .devices import run_devices
from .devices_outcome import Outcome
from .display import Display
from .options import check_energy_device, check_goal, check_script, run_folder, without
from .store import DEVICES, read_record

WITH_VALUE = ("--gpus", "--device", "--output", "-o")
"""Options that each device's own run gets anew."""


def run(
    script: str,
    arguments: Sequence[str],
    command: Sequence[str],
    options: dict[str, Any],
    display: Display,
    *,
    goal: Goal,
) -> Outcome:
    """Probes the script on several devices.

    Args:
        command: the command line from the verb on.
        options: as click parsed them.
        goal: that they make.

    Raises:
        UsageError: the options contradict each other, or there are no such devices.
        RunError: nothing was measured.
    """
    if options["gpus"] is not None and options["device"] != "auto":
        msg = "--gpus and --device contradict each other."
        raise UsageError(msg, "Leave one of them out.")
    for name in ("nproc_per_node", "resume", "dry_run"):
        if options[name]:
            option = "--" + name.replace("_", "-")
            msg = f"{option} is for one run, and several devices were named."
            raise UsageError(msg, f"Leave {option} out, or name one device.")
    check_goal(goal)
    if not options["module"]:
        check_script(script)
    found = (
        chosen_gpus(options["gpus"])
        if options["gpus"] is not None
        else logical_devices(options["device"])
    )
    for one in found:
        check_energy_device(one.option, goal)
    folder = options["output"] or run_folder(script, time.strftime("%Y%m%d-%H%M%S"))
    last = 1 + len(arguments)
    own = without(command[:-last], with_value=WITH_VALUE)
    display.start()
    try:
        return run_devices(
            found,
            own,
            command[-last:],
            folder,
            display,
            memory_limit_bytes=options["memory_limit"],
        )
    finally:
        display.close()


def answer(outcome: Outcome, *, width: int, color: bool, as_json: bool) -> str:
    """The table, or everything as JSON."""
    split = outcome.split
    if as_json:
        known = not isinstance(split, str)
        data = {
            "devices_path": str(outcome.folder / DEVICES),
            "devices": outcome.record,
            "answers": {
                name: {"record": record, "advice": advice}
                for name, (record, advice) in outcome.answers.items()
            },
            "split": split if known else None,
            "unavailable": {} if known else {"split": split},
        }
        return msgspec.json.format(msgspec.json.encode(data), indent=2).decode()
    from ..reports.devices import render

    return render(
        outcome.record,
        outcome.answers,
        folder=str(outcome.folder),
        width=width,
        color=color,
        encoding=sys.stdout.encoding or "ascii",
        split=split,
        resume=_to_resume(outcome),
    )


def _to_resume(outcome: Outcome) -> list[str]:
    """The commands that go on with what was interrupted, a device each."""
    commands = []
    for one in outcome.record.devices:
        if one.exit_code == INTERRUPTED and one.twin_of is None and one.folder:
            folder = outcome.folder / one.folder
            with contextlib.suppress(BatchAdvisorError):
                record = read_record(folder)
                if record.state == "interrupted":
                    commands.append(next_command(record, advise(record), folder))
    return commands
