"""The page of a run on several devices, as a window of text shows it."""

from __future__ import annotations

import shlex

from ....records import DevicesRecord, SplitPlan
from ...blocks import Block, Command, Document, Paragraph, Section, paragraphs
from ...report import Column, Row, Table
from ...words.wording import clean
from . import split as split_text
from .rows import HEADER, Answers, device_findings, device_row, headline, size_of, together_text

ENDINGS = {"running": "has not finished", "interrupted": "was interrupted", "failed": "failed"}


def build_devices_text(
    record: DevicesRecord,
    answers: Answers,
    split: SplitPlan | str | None = None,
    *,
    folder: str,
) -> Document:
    """A row a device, what the twins showed, the plan for all of them.

    Args:
        answers: record and advice by device, where there are any.
        split: the plan for all devices together, or why there is none.
        folder: of the run.
    """
    rows = [device_row(run, answers.get(run.device)) for run in record.devices]
    table = Table(
        title="Devices",
        columns=tuple(Column(title=title, left=True) for title in HEADER),
        rows=tuple(Row(cells=tuple(map(clean, cells))) for cells in rows),
    )
    sections = [Section(title="Devices", blocks=(table, *paragraphs([together_text(answers)])))]
    if split is not None and len(record.devices) > 1:
        sections.append(_split(split, folder))
    findings = tuple(each for run in record.devices for each in device_findings(run))
    if findings:
        sections.append(Section(title="Findings", blocks=findings))
    ending = ENDINGS.get(record.state, "")
    unfinished = f"The run {ending}; what was measured is below." if ending else ""
    return Document(
        title="several devices",
        headline=clean(headline(record, answers)),
        tone="good" if first_folder(record, answers) is not None else "bad",
        blocks=(*paragraphs([unfinished]), *sections),
    )


def first_folder(record: DevicesRecord, answers: Answers) -> str | None:
    """The folder of the first device with an answer, below that of the run."""
    with_size = (run for run in record.devices if size_of(answers.get(run.device)) is not None)
    return next((run.folder for run in with_size), None)


def _split(split: SplitPlan | str, folder: str) -> Section:
    section = split_text.section(split)
    blocks: list[Block] = [] if section.shares is None else [section.shares]
    blocks += [Paragraph(text=clean(text)) for text in split_text.short_texts(split)]
    if section.options is not None:
        command = f"batchadvisor report {shlex.quote(folder)}"
        blocks.append(Section(blocks=(section.options,)))
        blocks.append(
            Section(blocks=(Command(label="Sampler and loss weight to paste", text=command),))
        )
    return Section(title="Split plan", blocks=tuple(blocks))
