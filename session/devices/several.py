"""`run --gpus` and `run --device cpu:1,cpu:1`: checks, the runs, the answer."""

from __future__ import annotations

import contextlib
import shlex
import sys
import time
from collections.abc import Sequence

import msgspec

from ...advisor.advise import advise
from ...errors import INTERRUPTED_BY, BatchAdvisorError, UsageError
from ..answer import next_command
from ..display import Display
from ..recording.store import DEVICES, read_record
from ..setup.device_choice import chosen_gpus, logical_devices
from ..setup.options import RunOptions, check_energy_device, check_goal, check_script, run_folder
from .device_runs import run_devices
from .outcome import Outcome

FOR_ONE_RUN = {
    "--nproc-per-node": "num_ranks",
    "--resume": "resume",
    "--dry-run": "dry_run",
}
"""Abilities of a run on one device alone, by the option that asks for each."""


def run(options: RunOptions, display: Display) -> Outcome:
    """Probes the script on several devices.

    Raises:
        UsageError: the options contradict each other, or there are no such devices.
        RunError: nothing was measured.
    """
    if options.gpus is not None and options.device != "auto":
        msg = "--gpus and --device contradict each other."
        raise UsageError(msg, "Leave one of them out.")
    for option, field in FOR_ONE_RUN.items():
        if getattr(options, field):
            msg = f"{option} is for one run, and several devices were named."
            raise UsageError(msg, f"Leave {option} out, or name one device.")
    check_goal(options.goal)
    if not options.module:
        check_script(options.script_path)
    devices = (
        chosen_gpus(options.gpus) if options.gpus is not None else logical_devices(options.device)
    )
    for device in devices:
        check_energy_device(device.option, options.goal)
    folder = options.output or run_folder(options.script, time.strftime("%Y%m%d-%H%M%S"))
    display.start()
    try:
        return run_devices(devices, options, folder, display)
    finally:
        display.close()


def answer(
    outcome: Outcome, *, width: int, color: bool, as_json: bool, then: Sequence[str] = ()
) -> str:
    """The table, or everything as JSON.

    Args:
        then: the commands to name at the end, instead of those that look at one device.
    """
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
    from ...reports.builder.devices.text import build_devices_text, first_folder
    from ...reports.terminal.document import render

    folder = str(outcome.folder)
    first = first_folder(outcome.record, outcome.answers)
    commands = list(then) or _to_resume(outcome)
    if first is not None and not commands:
        commands = [f"batchadvisor advise {shlex.quote(f'{folder}/{first}')}"]
    return render(
        build_devices_text(outcome.record, outcome.answers, split, folder=folder),
        files=[("", folder)],
        next_command=commands[0] if commands else "",
        others=commands[1:],
        width=width,
        color=color,
        encoding=sys.stdout.encoding or "ascii",
    )


def _to_resume(outcome: Outcome) -> list[str]:
    """The commands that go on with what was interrupted, a device each."""
    commands = []
    for device in outcome.record.devices:
        if device.exit_code in INTERRUPTED_BY and device.twin_of is None and device.folder:
            folder = outcome.folder / device.folder
            with contextlib.suppress(BatchAdvisorError):
                record = read_record(folder)
                if record.state == "interrupted":
                    commands.append(next_command(record, advise(record), folder))
    return commands
