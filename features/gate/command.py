"""`batchadvisor compare`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from ...cli.common import debug_option, json_option, terminal, wrote
from ...cli.types import PLACE, SIZE
from ...errors import UsageError


def _print_schema(context: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked:
        from .session import schema_text

        click.echo(schema_text(), nl=False)
        context.exit()


@click.command(short_help="Fail where a change made a script slower, or made it need more memory.")
@click.option(
    "--fail-if",
    "conditions",
    multiple=True,
    metavar="CONDITION",
    help="A change that is not allowed: step_time>+5%, throughput<-5%, peak_memory>+3%. Give one "
    "or more; without any, the runs are only compared.",
)
@click.option(
    "--size",
    type=SIZE,
    help="Batch size to compare (default: the script's own, if all runs timed it).",
)
@click.option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    type=PLACE,
    help="Write the answer to this file too; its suffix sets the format: .md (for a pull request) "
    "or .json.",
)
@click.option(
    "--junit", "junit_file", type=PLACE, help="Write JUnit XML to this file, a test a condition."
)
@click.option("--force", is_flag=True, help="Overwrite files that this command did not write.")
@json_option
@click.option(
    "--schema",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_schema,
    help="Print the JSON Schema of the JSON, then stop.",
)
@debug_option
@click.argument("before", type=PLACE)
@click.argument("after", type=PLACE)
def compare(
    *,
    before: Path,
    after: Path,
    conditions: tuple[str, ...],
    size: int | None,
    outputs: tuple[Path, ...],
    junit_file: Path | None,
    force: bool,
    as_json: bool,
    **_: Any,
) -> None:
    """Compare runs BEFORE a change with runs AFTER it, at one batch size.

    Each is a run's folder, its record.json, or a folder of such folders: several short runs of
    each side, in turn, tell small changes. Exit codes: 0 no condition is surely broken, 1 one is,
    2 wrong use, 3 the runs cannot be compared. Needs no torch.
    """
    from . import session

    asked = [session.condition_of(text) for text in conditions]
    session.check_files(outputs, junit_file, force=force)
    if before.resolve() == after.resolve():
        raise UsageError(f"{before} is on both sides.", "Name runs before and after the change.")
    gate = session.gate_of(before, after, asked, size)
    files = [*outputs, *([junit_file] if junit_file is not None else [])]
    kinds = [(session.write(gate, path, (str(before), str(after))), path) for path in files]
    if as_json:
        click.echo(session.gate_json(gate), nl=False)
    else:
        width, color = terminal()
        text = session.gate_text(gate, (before, after), width=width, color=color)
        click.echo(text, color=color)
        for kind, path in kinds:
            wrote(kind, path)
    sys.exit(gate.exit_code)
