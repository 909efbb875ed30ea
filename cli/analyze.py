"""`batchadvisor analyze`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..errors import UsageError
from .common import debug_option, force_option, json_option, terminal, wrote
from .types import PATH, PLACE


@click.command(short_help="Find out what limits the steps in existing traces.")
@click.option(
    "--kernels", type=click.IntRange(min=1), help="Show this many kernels, longest first."
)
@click.option("--steps", is_flag=True, help="Show each step.")
@click.option(
    "-o",
    "--output",
    type=PLACE,
    help="Write a page to this .html file: the same as in TensorBoard, with pictures of the steps.",
)
@force_option
@json_option
@debug_option
@click.argument("traces", metavar="TRACE...", nargs=-1, required=True, type=PATH)
def analyze(
    traces: tuple[Path, ...],
    kernels: int | None,
    steps: bool,
    as_json: bool,
    **page: Any,
) -> None:
    """Find out what limits the steps in TRACE: files of torch.profiler, or folders of them.

    Traces from several ranks of one job are read together. Needs no torch.
    """
    from ..session import analyze as session

    output: Path | None = page["output"]
    if output is not None:
        _check(output, kernels=kernels, steps=steps, as_json=as_json, force=page["force"])
        session.write_page(traces, output)
        wrote("page", output)
        return
    analysis = session.analyze(traces, num_kernels=kernels or 10)
    if as_json:
        click.echo(session.analysis_json(analysis))
        return
    width, color = terminal()
    text = session.analysis_text(
        analysis, traces, steps=steps, kernels=kernels or 0, width=width, color=color
    )
    click.echo(text, color=color)


def _check(output: Path, *, kernels: int | None, steps: bool, as_json: bool, force: bool) -> None:
    """Refuses what a page cannot be, before any trace is read."""
    from ..session.report import check_output

    if as_json or kernels is not None or steps:
        given = "--json" if as_json else "--steps" if steps else "--kernels"
        raise UsageError(
            f"{given} is for the terminal, --output writes a page that shows all.",
            "Use one of them.",
        )
    if output.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"{output}: the page is HTML.", "Name a file that ends in .html.")
    check_output(output, force=force)
