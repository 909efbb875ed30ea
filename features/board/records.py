"""What the tab in TensorBoard lists: runs of ours and traces of anybody in a log directory."""

from __future__ import annotations

from typing import Literal

from ...records.advice import Advice
from ...records.analysis import Analysis
from ...records.anatomy import TraceAnatomy
from ...records.base import Record
from ...records.run import RunRecord


class TraceFile(Record, frozen=True, kw_only=True):
    """A trace below a log directory.

    Attributes:
        key: names it in addresses; made from its path, and no path itself.
        path: relative to its entry's folder, cleaned for display.
        num_bytes: size on disk, packed or not.
    """

    key: str
    path: str
    num_bytes: int


class Entry(Record, frozen=True, kw_only=True):
    """A run with a record, one on several devices, or a folder of traces without a run.

    Attributes:
        key: names it in addresses; made from its path, and no path itself.
        name: path relative to the log directory, cleaned for display.
        version: changes when any of its files does.
        modified_s: seconds since the epoch at which the newest of them was written.
    """

    key: str
    name: str
    kind: Literal["run", "devices", "traces"]
    version: str
    modified_s: float
    traces: tuple[TraceFile, ...] = ()


class Shown(Record, frozen=True, kw_only=True):
    """One entry, read: a run has `record` and `advice`, traces have `analysis` and `anatomies`.

    One on several devices has nothing of its own: each device is a run.

    Attributes:
        problem: why there is none of them, with what to do about it.
    """

    entry: Entry
    record: RunRecord | None = None
    advice: Advice | None = None
    analysis: Analysis | None = None
    anatomies: tuple[TraceAnatomy, ...] = ()
    problem: str = ""
