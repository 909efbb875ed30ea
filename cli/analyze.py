"""`batchadvisor analyze`."""

from __future__ import annotations

from pathlib import Path

import click

from .common import debug_option, terminal
from .types import PATH


@click.command(short_help="Find out what limits the steps in existing traces.")
@click.option(
    "--kernels", type=click.IntRange(min=1), help="Show this many kernels, longest first."
)
@click.option("--steps", is_flag=True, help="Show each step.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")
@debug_option
@click.argument("traces", metavar="TRACE...", nargs=-1, required=True, type=PATH)
def analyze(traces: tuple[Path, ...], kernels: int | None, steps: bool, as_json: bool) -> None:
    """Find out what limits the steps in TRACE: files of torch.profiler, or folders of them.

    Traces from several ranks of one job are read together. Needs no torch.
    """
    from ..session import analyze as session

    analysis = session.analyze(traces, num_kernels=kernels or 10)
    if as_json:
        click.echo(session.analysis_json(analysis))
        return
    width, color = terminal()
    text = session.analysis_text(
        analysis, traces, steps=steps, kernels=kernels or 0, width=width, color=color
    )
    click.echo(text, color=color)
