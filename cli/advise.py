"""`batchadvisor advise`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from ..errors import UsageError
from .common import (
    JsonOrBrief,
    goal_of,
    goal_options,
    print_answer,
    terminal,
    verbose_option,
)
from .types import PLACE


@click.command(
    cls=JsonOrBrief,
    short_help="Recompute the advice from a saved run, optionally for a different goal.",
)
@goal_options
@click.option(
    "--global-batch",
    type=click.IntRange(1),
    help="For a run on several devices: samples per step to split over them (default: the sum of "
    "the recommended sizes).",
)
@verbose_option
@click.option("--line", "as_line", is_flag=True, help="Print one line, for the end of a job's log.")
@click.argument("record", type=PLACE)
def advise(
    *,
    record: Path,
    as_json: bool,
    brief: bool,
    as_line: bool,
    global_batch: int | None,
    verbose: bool,
    **options: Any,
) -> None:
    """Recompute the advice from RECORD, a run's folder or its record.json. Needs no torch.

    For a run on several devices, prints a row for each device. --json=brief prints less than 2 KB:
    the size, why, and the change as a diff.
    """
    from ..advisor.advise import advise as advise_on
    from ..session.answer import answer_line
    from ..session.devices.outcome import read_devices
    from ..session.recording.store import read_record
    from ..session.setup.options import check_energy

    if as_line and (as_json or global_batch is not None):
        other = "--json" if as_json else "--global-batch"
        raise UsageError(f"--line and {other} contradict each other.", "Leave one of them out.")
    several = read_devices(record) if record.is_dir() else None
    if several is not None and brief:
        msg = f"--json=brief is for a run on one device; {record} ran on several."
        raise UsageError(msg, "Use --json, or name the folder of one device in it.")
    if several is not None:
        from ..session.devices.several import answer

        for device_run, _ in several.answers.values():
            check_energy(device_run, goal_of(options, device_run.goal))
        several = several.under(lambda goal: goal_of(options, goal), global_batch=global_batch)
        if as_line:
            for name, own in several.answers.items():
                click.echo(f"{name}: {answer_line(*own)}")
            sys.exit(0 if several.recommends else 1)
        width, color = terminal()
        click.echo(answer(several, width=width, color=color, as_json=as_json))
        sys.exit(0 if several.recommends else 1)
    if global_batch is not None:
        msg = f"--global-batch is for a run on several devices; {record} ran on one."
        raise UsageError(msg, "Leave it out, or name the folder of a run with --gpus.")
    run = read_record(record)
    folder = record if record.is_dir() else record.parent
    goal = goal_of(options, run.goal)
    check_energy(run, goal)
    advice = advise_on(run, goal)
    if as_line:
        click.echo(answer_line(run, advice))
    else:
        print_answer(run, advice, folder, as_json=as_json, verbose=verbose, brief=brief)
    if advice.recommended is None:
        sys.exit(1)
