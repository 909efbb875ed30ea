"""`batchadvisor advise`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from .common import goal_of, goal_options, print_answer


@click.command(short_help="Advise again from a record, also under another goal.")
@goal_options
@click.argument("record", type=click.Path(path_type=Path))
def advise(record: Path, as_json: bool, **options: Any) -> None:
    """Advise again from RECORD, a run's folder or its record.json. Needs no torch."""
    from ..advisor.advise import advise as advise_on
    from ..session.options import check_energy
    from ..session.store import read_record

    found = read_record(record)
    folder = record if record.is_dir() else record.parent
    goal = goal_of(options, found.goal)
    check_energy(found, goal)
    advice = advise_on(found, goal)
    print_answer(found, advice, folder, as_json=as_json)
    if advice.recommended is None:
        sys.exit(1)
