"""`batchadvisor report`: a record, or two, as one file."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ..errors import UsageError
from ..records import SCHEMA_VERSION, Goal, RunRecord
from ..reports.report import ComparisonReport, Report
from .features import with_features
from .pages import file_text
from .recording.store import DEVICES, read_record, read_samples, write_output

SUFFIXES = {".html": "HTML", ".htm": "HTML", ".md": "Markdown", ".json": "JSON"}
OURS = ("<!doctype html>\n<!-- batchadvisor report -->", "<!-- batchadvisor report -->",
        '<?xml version="1.0" encoding="UTF-8"?>\n<!-- batchadvisor',
        '{\n "kind": ', '{"$schema":"https://www.speedscope.app/')  # fmt: skip
"""What a file that this verb wrote begins with; anything else is not written over unasked."""


def report_of(record: RunRecord, folder: Path, goal: Goal | None = None) -> Report:
    """The report object of a record that stands in a folder.

    Args:
        goal: another goal than the record's own.
    """
    from ..advisor.advise import advise
    from ..reports.builder.run import build_report

    advice = advise(record, goal)
    report = with_features(build_report(record, advice, samples=_nvml(folder)), folder)
    newer = _newer(record.schema_version)
    if newer:
        report = msgspec.structs.replace(report, notices=(newer, *report.notices))
    return report


def devices_report_of(folder: Path) -> Report | None:
    """The report object of a run on several devices; `None` if the folder holds no such run.

    Raises:
        UsageError: it holds one that cannot be read, or in which no device was measured.
    """
    from ..reports.builder.devices.report import build_devices_report
    from .devices.outcome import read_devices

    if not (folder / DEVICES).is_file():
        return None
    outcome = read_devices(folder)
    if outcome is None:
        msg = f"{folder / DEVICES} is not a record of several devices."
        raise UsageError(msg, "Give a run's folder or its record.json.")
    if not outcome.answers:
        msg = f"{folder} holds no device's record: nothing was measured."
        raise UsageError(msg, "Give the folder of a run that measured something.")
    samples = {
        device.device: _nvml(folder / device.folder)
        for device in outcome.record.devices
        if device.device in outcome.answers
    }
    return build_devices_report(outcome.record, outcome.answers, samples, outcome.split)


def comparison_of(
    first: tuple[RunRecord, Path], second: tuple[RunRecord, Path]
) -> ComparisonReport:
    """The report object of two records."""
    from ..advisor.advise import advise
    from ..advisor.compare import compare
    from ..reports.builder.comparison import build_comparison
    from ..reports.builder.growth import of_runs
    from ..reports.builder.sizes.rows import size_rows

    records = (first[0], second[0])
    answers = (advise(first[0]), advise(second[0]))
    names = _names(first[1], second[1])
    rows = (size_rows(first[0], answers[0]), size_rows(second[0], answers[1]))
    return build_comparison(
        compare(*records, *answers),
        report_of(*first),
        report_of(*second),
        names,
        of_runs(names, rows, answers),
    )


def load(path: Path) -> tuple[RunRecord, Path]:
    """A record and its folder.

    Raises:
        UsageError: there is none, or it is not one that this version reads.
    """
    return read_record(path), path if path.is_dir() else path.parent


def check_output(path: Path, *, force: bool, suffixes: Collection[str] = SUFFIXES) -> None:
    """Refuses a file that cannot be written or is not ours, before any work.

    Args:
        suffixes: that the command writes.

    Raises:
        UsageError: unknown suffix, no such folder, a folder, or somebody else's file.
    """
    if path.suffix.lower() not in suffixes:
        msg = f"{path}: the suffix sets the format, and {path.suffix or 'none'} is not one."
        raise UsageError(msg, f"Use {', '.join(suffixes)}.")
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "no ordinary file"
        raise UsageError(f"{path} is {what}.", "Name a file.")
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent}.", "Create it, or name another.")
    if path.exists() and not force and not _is_ours(path):
        msg = f"{path} exists and was not written by this command."
        raise UsageError(msg, "Name another file, or overwrite it with --force.")


def write_report(
    report: Report | ComparisonReport, path: Path, record: tuple[RunRecord, Path] | None = None
) -> None:
    """Writes the file whole or not at all; the suffix chooses the renderer.

    Args:
        record: of the run and its folder, from whose trace a page draws steps.

    Raises:
        RunError: it cannot be written.
    """
    text = rendered(report, SUFFIXES[path.suffix.lower()], record)
    write_output(path, text)


def rendered(
    report: Report | ComparisonReport, kind: str, record: tuple[RunRecord, Path] | None = None
) -> str:
    """The report as text of a kind: HTML, Markdown or JSON.

    Args:
        record: of the run and its folder, from whose trace HTML draws steps.
    """
    if kind == "JSON":
        from ..reports.data.report import render as data

        return data(report)
    if isinstance(report, ComparisonReport):
        from ..reports.builder.comparison import comparison_page

        return file_text(comparison_page(report), markdown=kind == "Markdown")
    if kind == "Markdown":
        from ..reports.markdown.page import render as markdown

        return markdown(report)
    from ..reports.html.page import render as html
    from .run_traces import pictures_of

    return html(report, None if record is None else pictures_of(report, *record))


def _is_ours(path: Path) -> bool:
    try:
        with path.open(encoding="utf-8") as file:
            return file.read(64).startswith(OURS)
    except (OSError, UnicodeDecodeError):
        return False


def _nvml(folder: Path) -> list[dict[str, Any]]:
    """The rows of `samples.jsonl` that NVML wrote, in order of time."""
    rows = [
        sample for sample in read_samples(folder) if isinstance(sample.get("time_s"), (int, float))
    ]
    return sorted(rows, key=lambda row: float(row["time_s"]))


def _newer(version: str) -> str:
    """A note for a record whose minor version is newer than this program's."""
    mine, its = (tuple(map(_whole, text.split("."))) for text in (SCHEMA_VERSION, version))
    if its <= mine:
        return ""
    return (
        f"The record has schema {version}, this version knows {SCHEMA_VERSION}: what is new in it "
        "is not shown."
    )


def _whole(text: str) -> int:
    return int(text) if text.isdigit() else 0


def _names(first: Path, second: Path) -> tuple[str, str]:
    """The folders' names, longer where they are the same."""
    left, right = first.resolve(), second.resolve()
    if left.name != right.name:
        return left.name, right.name
    if left != right:
        return f"{left.parent.name}/{left.name}", f"{right.parent.name}/{right.name}"
    return f"{left.name} (first)", f"{right.name} (second)"


def next_command(
    report: Report | ComparisonReport,
    records: Sequence[Path],
    path: Path,
    options: Sequence[str] = (),
) -> str:
    """The command that a user is likely to want now.

    Args:
        options: under which the report was asked for; the next one answers the same question.
    """
    import shlex

    words = shlex.join([*options, *map(str, records)])
    if path.suffix.lower() in (".html", ".htm"):
        other = "comparison.md" if isinstance(report, ComparisonReport) else "report.md"
        return f"batchadvisor report {words} -o {other}"
    other = "comparison.html" if isinstance(report, ComparisonReport) else "report.html"
    return f"batchadvisor report {words} -o {other}"
