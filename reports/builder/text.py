"""Makes the report as a window of text shows it, from a record and its advice."""

from __future__ import annotations

import re

from ...records import Advice, RunRecord
from ..report import Fact
from ..text import TextReport
from ..words.wording import change_text, clean, why_unknown
from .run import build_report
from .sections.circumstances import reservations
from .sections.distribution import distribution_rows, epoch_rows, epochs_unknown
from .sections.memory import memory_lines
from .sections.tail import tail_texts
from .sizes.columns import sizes_table
from .sizes.rows import size_rows


def build_text(record: RunRecord, advice: Advice) -> TextReport:
    """The report of a run, and what a window of text says in its own way."""
    chosen = advice.recommended is not None
    ranks = distribution_rows(record, advice)
    scaling = advice.scaling if ranks else None
    return TextReport(
        report=build_report(record, advice),
        sizes=sizes_table(record, size_rows(record, advice)),
        sure=advice.sureness == "confirmed" and not reservations(advice),
        change=tuple(clean(part) for part in re.split(r"\s{2,}", change_text(advice))),
        training_unknown=f"not known: {why_unknown(advice, 'training')}"
        if chosen and advice.training is None
        else "",
        ranks=tuple(Fact(label=label, text=text) for label, text in ranks),
        epochs_unknown=epochs_unknown(scaling) if scaling is not None else "",
        epochs=epoch_rows(scaling) if scaling is not None else None,
        tail_bad=tuple(bad for _, bad in tail_texts(advice)) if chosen else (),
        files=record.files,
        memory=memory_lines(record),
    )
