"""`batchadvisor analyze`."""

from __future__ import annotations

from pathlib import Path

import click

from .common import debug_option, terminal
from .types import PATH


@click.command(short_help="Say what limits the steps of traces that exist already.")
@click.option("--kernels", type=click.IntRange(min=1), help="Show so many kernels by time.")
@click.option("--steps", is_flag=True, help="Show each step.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")
@debug_option
@click.argument("traces", metavar="TRACE...", nargs=-1, required=True, type=PATH)
def analyze(traces: tuple[Path, ...], kernels: int | None, steps: bool, as_json: bool) -> None:
    """Say what limits the steps of TRACE: files of torch.profiler, or folders of them.

    Traces of several ranks of one job are taken together. Needs no torch.
    """
    from ..session import analyze as session

    found = session.analyze(traces, num_kernels=kernels or 10)
    if as_json:
        click.echo(session.analysis_json(found))
        return
    width, color = terminal()
    text = session.analysis_text(
        found, traces, steps=steps, kernels=kernels or 0, width=width, color=color
    )
    click.echo(text, color=color)
