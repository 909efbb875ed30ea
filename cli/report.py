"""`batchadvisor report`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..errors import UsageError
from .common import force_option, goal_of, goal_options, wrote
from .types import PLACE


def _print_schema(context: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked:
        from ..reports.data.report import schema_text

        click.echo(schema_text(), nl=False)
        context.exit()


@click.command(short_help="Write a run, or a comparison of two, as HTML, Markdown or JSON.")
@goal_options
@click.option(
    "-o",
    "--output",
    type=PLACE,
    help="File to write; its suffix sets the format: .html, .md or .json; .speedscope.json for the "
    "stacks alone (default: report.html or comparison.html in the folder of the last record).",
)
@force_option
@click.option(
    "--schema",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_schema,
    help="Print the JSON Schema of the JSON report, then stop.",
)
@click.argument("records", metavar="RECORD [RECORD_B]", nargs=-1, required=True, type=PLACE)
def report(
    records: tuple[Path, ...], output: Path | None, force: bool, as_json: bool, **options: Any
) -> None:
    """Write a report of RECORD, a run's folder or its record.json, to one file.

    The HTML file is self-contained. With RECORD_B, the report compares the two runs: what changed
    from the first to the second. Needs no torch.
    """
    from ..session import report as session
    from ..session.run_traces import is_speedscope

    if len(records) > 2:
        raise UsageError(
            f"{len(records)} records: a report compares two at most.", "Name one or two."
        )
    path = output or _default(records)
    if as_json and output is not None:
        raise UsageError(
            "--json prints the report, --output writes it to a file.", "Use one of them."
        )
    if is_speedscope(path):
        session.check_output(path, force=force)
        _write_stacks(records, path, options)
        return
    content, record = _report(records, options, path.parent)
    if not as_json:
        session.check_output(path, force=force)
    if as_json:
        click.echo(session.rendered(content, "JSON"), nl=False)
        return
    session.write_report(content, path, record)
    wrote("report", path)
    click.echo(f"Next: {session.next_command(content, records, path, _typed(options))}")


def _default(records: tuple[Path, ...]) -> Path:
    last = records[-1]
    folder = last if last.is_dir() else last.parent
    return folder / ("comparison.html" if len(records) == 2 else "report.html")


def _write_stacks(records: tuple[Path, ...], path: Path, options: dict[str, Any]) -> None:
    """The stacks of one run, at the size whose kernels its report shows."""
    from ..session import report, run_traces

    if len(records) != 1:
        raise UsageError("two records: a file of stacks is of one.", "Name one.")
    if records[0].is_dir() and report.devices_report_of(records[0]) is not None:
        msg = f"{records[0]} is of several devices: a file of stacks is of one."
        raise UsageError(msg, "Name the folder of one device in it.")
    record, folder = report.load(records[0])
    goal = goal_of(options, record.goal)
    stacks, trace = run_traces.stacks_of(record, folder, None if goal == record.goal else goal)
    run_traces.write_stacks(stacks, f"{record.script.path}, batch size {trace.batch_size}", path)
    wrote(f"stacks of batch size {trace.batch_size}", path)
    if not stacks.stacks:
        click.echo("They hold operators alone: run with --stacks to record Python's stacks too.")
    click.echo("Next: open it in a viewer such as speedscope (npx speedscope FILE)")


def _report(
    records: tuple[Path, ...], options: dict[str, Any], shown_from: Path
) -> tuple[Any, Any]:
    """The report object of one record, of several devices, or of two; of one also its record."""
    from ..session import report as session

    if len(records) == 2:
        _refuse_goal(options, "two records: each keeps its own goal")
        return session.comparison_of(*map(session.load, records)), None
    several = session.devices_report_of(records[0]) if records[0].is_dir() else None
    if several is not None:
        _refuse_goal(options, "several devices: each keeps its own goal")
        return several, None
    record = session.load(records[0])
    return _one(*record, options, shown_from), record


def _one(record: Any, folder: Path, options: dict[str, Any], shown_from: Path) -> Any:
    from ..session import report as session
    from ..session.run_traces import with_flames
    from ..session.setup.options import check_energy

    goal = goal_of(options, record.goal)
    check_energy(record, goal)
    report = session.report_of(record, folder, None if goal == record.goal else goal)
    return with_flames(report, folder, shown_from)


def _typed(options: dict[str, Any]) -> list[str]:
    """The options of the goal that were given, as words of a command."""
    words = ["--goal", options["goal"]] if options["goal"] is not None else []
    for name in ("tolerance", "memory_margin"):
        if options[name] is not None:
            words += [f"--{name.replace('_', '-')}", f"{options[name]:.6g}"]
    return words


def _refuse_goal(options: dict[str, Any], why: str) -> None:
    given = [name for name in ("goal", "tolerance", "memory_margin") if options[name] is not None]
    if given:
        flags = ", ".join(f"--{option.replace('_', '-')}" for option in given)
        raise UsageError(f"{flags} with {why}.", "Leave it out.")
