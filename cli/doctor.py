"""`batchadvisor doctor`."""

from __future__ import annotations

import sys

import click

from .common import debug_option, json_option, terminal


@click.command(short_help="Check what a run finds on this machine, and what is missing.")
@json_option
@debug_option
def doctor(*, as_json: bool) -> None:
    """Check this machine: torch, driver, counters, memory, tools. Says why something is missing.

    Exits with code 1 if `batchadvisor run` would not work here.
    """
    from ..session.doctor import checkup, checkup_json, checkup_text

    result = checkup()
    click.echo(checkup_json(result) if as_json else checkup_text(result, width=terminal()[0]))
    if not result.works:
        sys.exit(1)
