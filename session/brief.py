"""The answer in a few lines of JSON: `--json=brief`."""

from __future__ import annotations

import shlex
from pathlib import Path

import msgspec

from ..advisor.measured.measurements import Measurements
from ..records import BRIEF_VERSION, Advice, Brief, RunRecord, Spread
from ..reports.data.report import schema_of
from ..reports.words.wording import clean
from .answer import next_command
from .change_diff import NoDiffError, change_diff
from .recording.store import RECORD

MOST_BYTES = 2000
"""The JSON is no longer."""
TEXT = 240
"""A text has no more characters."""
SHORTER = (120, 60)
"""Nor so many where the JSON would be too long: of long paths, or of letters of several bytes."""
CONTEXTS = (3, 1)
"""Lines around a change in the diff; fewer where it would be too long."""


def brief_json(record: RunRecord, advice: Advice, folder: Path) -> str:
    """The answer as JSON below 2 KB, on one line."""
    return msgspec.json.encode(brief_of(record, advice, folder)).decode()


def brief_of(record: RunRecord, advice: Advice, folder: Path) -> Brief:
    """The answer, its reason, and the change as a diff."""
    unavailable: dict[str, str] = {}
    choice, own = advice.recommended, Measurements.of(record).own_size
    size = None if choice is None else choice.batch_size
    if size is None:
        unavailable["size"] = _short(advice.headline)
    if own is None:
        why = record.discovery.why_own_unknown if record.discovery is not None else ""
        unavailable["own_size"] = _short(why or "no training loop was found")
    ratio = _ratio(advice, size, own)
    if isinstance(ratio, str):
        unavailable["ratio"] = ratio
    answer = Brief(
        state=record.state,
        answer=_short(advice.headline),
        size=size,
        own_size=own,
        ratio=None if isinstance(ratio, str) else ratio,
        why=_short(advice.reason),
        sureness=advice.sureness,
        standing=advice.standing,
        change=_short(advice.change),
        diff=None,
        next=next_command(record, advice, folder),
        record=str(folder / RECORD),
        unavailable=unavailable,
    )
    return _with_diff(answer, record, advice)


def schema_text() -> str:
    """JSON Schema of the answer; `reports/brief.schema.json` is this, committed."""
    return schema_of("brief", BRIEF_VERSION, Brief)


def _with_diff(answer: Brief, record: RunRecord, advice: Advice) -> Brief:
    reason = f"it is longer than the {MOST_BYTES} bytes of this answer"
    for context in CONTEXTS:
        try:
            diff = change_diff(record, advice, context)
        except NoDiffError as none:
            reason = str(none)
            break
        whole = msgspec.structs.replace(answer, diff=diff)
        if _fits(whole):
            return whole
    unavailable = {**answer.unavailable, "diff": _short(reason)}
    return _within(msgspec.structs.replace(answer, unavailable=unavailable))


def _within(answer: Brief) -> Brief:
    """The answer with shorter words, and then without the next command, where it is too long."""
    short = answer
    for limit in SHORTER:
        if _fits(short):
            return short
        short = msgspec.structs.replace(
            answer,
            answer=clean(answer.answer, limit=limit),
            why=clean(answer.why, limit=limit),
            change=clean(answer.change, limit=limit),
            unavailable={
                field: clean(why, limit=limit) for field, why in answer.unavailable.items()
            },
        )
    if _fits(short):
        return short
    reason = f"too long for this answer: batchadvisor show {shlex.quote(answer.record)} has it"
    return msgspec.structs.replace(
        short, next="", unavailable={**short.unavailable, "next": reason}
    )


def _fits(answer: Brief) -> bool:
    return len(msgspec.json.encode(answer)) <= MOST_BYTES


def _ratio(advice: Advice, size: int | None, own: int | None) -> Spread | str:
    """The throughput over that of the script's own size; why it is not known."""
    if size is None:
        return "no size is recommended"
    if size == own:
        return "the size is the script's own"
    if advice.against_own is None or advice.considered is not None:
        return "the size was not compared with the script's own"
    spread = advice.against_own
    low, middle, high = (round(each, 4) for each in (spread.low, spread.median, spread.high))
    return msgspec.structs.replace(spread, low=low, median=middle, high=high)


def _short(text: str) -> str:
    return clean(text, limit=TEXT)
