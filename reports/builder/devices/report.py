"""The report object of a run on several devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ....records import DevicesRecord, SplitPlan
from ...report import Column, Fact, Finding, Report, Row, RowState, Table
from ...words.wording import clean, percent, plural
from ..run import LONGEST, UNFINISHED, build_report
from . import split as split_text
from .rows import HEADER, Answers, device_findings, device_row, headline, rates, together_text

LEFT = {"device", "limit", "sureness"}


def build_devices_report(
    record: DevicesRecord,
    answers: Answers,
    samples: Mapping[str, Sequence[Mapping[str, Any]]],
    split: SplitPlan | str | None = None,
) -> Report:
    """One report for all devices; a twin that shares its record has a row and no section.

    Args:
        answers: record and advice by device; at least one.
        samples: rows of the `samples.jsonl` of each device.
        split: the plan for all devices together, or why there is none.
    """
    own = [run.device for run in record.devices if run.twin_of is None and run.device in answers]
    own = own or list(answers)
    first = own[0]
    parts = [(name, *answers[name], samples.get(name, ())) for name in own]
    report = build_report(*answers[first], devices=parts)
    alone = len(own) == 1
    several = len(record.devices) > 1
    whose = f"What limits the step, the training and the last batch are those of {first}."
    notices = [UNFINISHED[record.state]] if record.state in UNFINISHED else []
    notices += [text for text in report.notices if text not in UNFINISHED.values()]
    return msgspec.structs.replace(
        report,
        title=clean(f"batch sizes of {answers[first][0].script.path} by device"),
        state=record.state,
        headline=clean(headline(record, answers)),
        reason=clean(together_text(answers)),
        sureness="",
        change=report.change if alone else "",
        notices=tuple(notices if alone else [*notices, clean(whose)]),
        circumstances=_circumstances(record, report),
        tables=(_table(record, answers), *report.tables),
        split=split_text.section(split) if split is not None and several else None,
        findings=(
            *(finding for run in record.devices for finding in device_findings(run)),
            *_findings(own, answers, report),
        ),
        identity=(
            Fact(label="command", text=clean(" ".join(record.command))),
            Fact(label="started", text=clean(record.started_at)),
            *(fact for fact in report.identity if fact.label not in ("command", "started")),
        ),
    )


def _circumstances(record: DevicesRecord, report: Report) -> tuple[Fact, ...]:
    devices = ", ".join(f"{run.device} ({run.model})" for run in record.devices)
    measured_on = Fact(
        label="Measured on", text=clean(f"{plural(len(record.devices), 'device')}: {devices}.")
    )
    return (measured_on, *(fact for fact in report.circumstances if fact.label == "Goal"))


def _table(record: DevicesRecord, answers: Answers) -> Table:
    speed = rates(answers)
    for run in record.devices:  # a twin shares the other's record: what its check said counts
        if run.check is not None and run.check.ratio is not None and run.twin_of in speed:
            speed[run.device] = speed[run.twin_of] * run.check.ratio.median
    whole = sum(speed.values())
    columns = [Column(title=title, left=title in LEFT) for title in HEADER]
    several = len(speed) > 1 and whole > 0
    rows = []
    for run in record.devices:
        cells = [clean(cell) for cell in device_row(run, answers.get(run.device))]
        if several:
            share = percent(100 * speed[run.device] / whole) if run.device in speed else "-"
            cells.append(share)
        weak = run.check is not None and run.check.verdict == "weak"
        state: RowState = "failed" if run.device not in answers else "doubtful" if weak else "ok"
        rows.append(Row(cells=tuple(cells), state=state))
    notes = []
    if several:
        columns.append(Column(title="share", unit="%"))
        notes = ["share: of the samples per second of all devices, each at its own size."]
    return Table(title="Devices", columns=tuple(columns), rows=tuple(rows), notes=tuple(notes))


def _findings(own: Sequence[str], answers: Answers, first: Report) -> tuple[Finding, ...]:
    """The findings of every device, with its name where there are several."""
    if len(own) == 1:
        return first.findings
    return tuple(
        msgspec.structs.replace(finding, message=clean(f"{name}: {finding.message}", limit=LONGEST))
        for name in own
        for finding in build_report(*answers[name]).findings
    )
