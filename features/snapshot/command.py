"""`batchadvisor memory`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...cli.common import (
    check_output_and_json,
    debug_option,
    force_option,
    json_option,
    output_option,
    terminal,
    wrote,
)
from ...cli.types import PATH

if TYPE_CHECKING:
    from ...records import MemoryAnalysis


@click.command(short_help="Say what filled the GPU's memory, from a snapshot of torch.")
@output_option("report")
@force_option
@click.option("--all", "whole", is_flag=True, help="Show every table, with all its rows.")
@json_option
@debug_option
@click.argument("snapshot", metavar="SNAPSHOT", type=PATH)
def memory(snapshot: Path, output: Path | None, force: bool, whole: bool, as_json: bool) -> None:
    """Say what filled the GPU's memory: SNAPSHOT is a file of torch.cuda.memory._dump_snapshot().

    Shows what is in use and by which line of code, what fragmentation takes, what was alive at the
    peak and at a failure, what grows from step to step, and what to cut. Runs nothing that is in
    the file. Needs no torch.
    """
    from ...session.memory import analyze_memory
    from ...session.pages import write_page

    if output is not None:
        check_output_and_json(output, as_json=as_json, force=force)
    analysis = analyze_memory(snapshot)
    if as_json:
        click.echo(_json(analysis))
        return
    if output is not None:
        from ...reports.builder.memory import build_memory_page

        write_page(lambda: build_memory_page(analysis), _json(analysis), output)
        wrote("report", output)
        return
    width, color = terminal()
    click.echo(_text(analysis, snapshot, whole=whole, width=width, color=color), color=color)


def _json(analysis: MemoryAnalysis) -> str:
    import msgspec

    return msgspec.json.format(msgspec.json.encode(analysis), indent=1).decode()


def _text(analysis: MemoryAnalysis, path: Path, *, whole: bool, width: int, color: bool) -> str:
    from ...reports.builder.memory import build_memory_page
    from ...session.pages import terminal_text

    return terminal_text(
        build_memory_page(analysis, whole=whole),
        next_command=f"batchadvisor memory {shlex.quote(str(path))} -o memory.html",
        width=width,
        color=color,
    ).rstrip("\n")
