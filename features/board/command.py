"""`batchadvisor view`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ...cli.common import debug_option
from ...cli.types import PLACE


@click.command(short_help="Show runs and traces in TensorBoard.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Port on 127.0.0.1 (default: 6006, or the next free one).",
)
@click.option(
    "--pytorch-profiler-tab",
    "tab",
    type=click.Choice(["auto", "on", "off"]),
    default="auto",
    help="The tab of torch-tb-profiler. auto adds it only while the traces are small, because it "
    "reads all of them at the start. Its pages need internet access in the browser.",
)
@debug_option
@click.argument("logdir", required=False, type=PLACE)
def view(logdir: Path | None, port: int | None, tab: Any) -> None:
    """Show LOGDIR in TensorBoard: a run, a folder of runs, or traces of any script.

    Without LOGDIR it shows all runs in batchadvisor-runs, and opens the newest.
    TensorBoard listens on 127.0.0.1 only. Press Ctrl-C to end it.
    """
    from . import view as session

    viewing = session.view(logdir, port=port, profiler_tab=tab)
    click.echo(f"Showing {viewing.logdir}")
    for note in viewing.notes:
        click.echo(note)
    click.echo(f"Open    {viewing.address}")
    click.echo("Press Ctrl-C to end it.")
    viewing.serve()
