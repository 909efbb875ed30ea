"""`batchadvisor show`."""

from __future__ import annotations

from pathlib import Path

import click

from .advise import advise
from .common import debug_option
from .types import PLACE


@click.command(short_help="Print the whole answer of a saved run.")
@debug_option
@click.argument("record", type=PLACE)
@click.pass_context
def show(context: click.Context, record: Path) -> None:
    """Print all that RECORD, a run's folder or its record.json, has to say. Needs no torch.

    The answer of `run` is one screen of it: every size, what it does to the training, where the
    memory goes, the last batch, all findings, estimates and files come here.
    """
    context.invoke(advise, record=record, verbose=True, brief=False)
