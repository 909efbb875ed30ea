"""Makes what a window of text shows of a run on several devices."""

from __future__ import annotations

from ....records import DevicesRecord, SplitPlan
from ...report import Column, Row, Table
from ...text import DevicesText
from ...words.wording import clean
from . import split as split_text
from .rows import HEADER, Answers, device_notes, device_row, headline, size_of, together_text

ENDINGS = {"running": "has not finished", "interrupted": "was interrupted", "failed": "failed"}


def build_devices_text(
    record: DevicesRecord, answers: Answers, split: SplitPlan | str | None = None
) -> DevicesText:
    """A row a device, what the twins showed, the plan for all of them.

    Args:
        answers: record and advice by device, where there are any.
        split: the plan for all devices together, or why there is none.
    """
    good = [run for run in record.devices if size_of(answers.get(run.device)) is not None]
    rows = [device_row(run, answers.get(run.device)) for run in record.devices]
    divided = split if len(record.devices) > 1 else None
    return DevicesText(
        headline=headline(record, answers),
        good=bool(good),
        unfinished=ENDINGS.get(record.state, ""),
        table=Table(
            title="Devices",
            columns=tuple(Column(title=title, left=True) for title in HEADER),
            rows=tuple(Row(cells=tuple(map(clean, cells))) for cells in rows),
        ),
        together=together_text(answers),
        split=None if divided is None else split_text.section(divided),
        split_texts=split_text.short_texts(divided) if divided is not None else (),
        notes=tuple(line for run in record.devices for line in device_notes(run)),
        first_folder=good[0].folder if good else None,
    )
