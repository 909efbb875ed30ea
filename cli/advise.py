"""`batchadvisor advise`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from .common import goal_of, goal_options, print_answer, terminal
from .types import PLACE


@click.command(short_help="Advise again from a record, also under another goal.")
@goal_options
@click.argument("record", type=PLACE)
def advise(record: Path, as_json: bool, **options: Any) -> None:
    """Advise again from RECORD, a run's folder or its record.json. Needs no torch.

    The folder of a run on several devices gives a row for each.
    """
    from ..advisor.advise import advise as advise_on
    from ..session.devices_outcome import read_devices
    from ..session.options import check_energy
    from ..session.store import read_record

    several = read_devices(record) if record.is_dir() else None
    if several is not None:
        from ..session.several import answer

        for one, _ in several.answers.values():
            check_energy(one, goal_of(options, one.goal))
        several = several.under(lambda goal: goal_of(options, goal))
        width, color = terminal()
        click.echo(answer(several, width=width, color=color, as_json=as_json))
        sys.exit(0 if several.recommends else 1)
    found = read_record(record)
    folder = record if record.is_dir() else record.parent
    goal = goal_of(options, found.goal)
    check_energy(found, goal)
    advice = advise_on(found, goal)
    print_answer(found, advice, folder, as_json=as_json)
    if advice.recommended is None:
        sys.exit(1)
