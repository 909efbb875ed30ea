"""The record while it grows: every change is saved at once, with the time spent so far."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from ...records import START_SHARE, Fault, FileTouched, RunRecord, Trial
from .store import RunStore


class RecordWriter:
    """Keeps one run's record on disk as it changes.

    Args:
        record: to begin with; that of an earlier part when a run is resumed.
        store: where it is saved.
        keep: whether it is saved at all; a run that is not kept makes no trials.
    """

    def __init__(self, record: RunRecord, store: RunStore, *, keep: bool) -> None:
        self.record = record
        self.store = store
        self.keep = keep
        self._started_s = time.monotonic()
        self._search_started_s: float | None = None
        self._elapsed_before_s = record.elapsed_s
        self._search_before_s = record.search_s

    def search_begins(self) -> None:
        """From now on all time counts against the budget; of the start before, a part."""
        now_s = time.monotonic()
        counted_s = START_SHARE * self.record.goal.budget_s
        self._search_before_s += min(counted_s, now_s - self._started_s)
        self._search_started_s = now_s
        self.change()

    def change(self, **changes: Any) -> None:
        """Replaces fields of the record."""
        search_s = self.search_s  # read before the whole, of which it is a part
        self.record = msgspec.structs.replace(
            self.record,
            elapsed_s=self._elapsed_before_s + time.monotonic() - self._started_s,
            search_s=search_s,
            **changes,
        )
        if self.keep:
            self.store.save(self.record)

    @property
    def search_s(self) -> float:
        """Seconds that count against the budget, over all resumed parts, up to now."""
        begun = self._search_started_s
        return self._search_before_s + (0.0 if begun is None else time.monotonic() - begun)

    def add_trial(self, trial: Trial) -> None:
        """A trial is over, whatever came of it."""
        trial = msgspec.structs.replace(trial, ended_s=self.search_s)
        self.change(trials=(*self.record.trials, trial))

    def add_fault(self, fault: Fault) -> None:
        """Something failed outside any trial."""
        self.change(faults=(*self.record.faults, fault))

    def add_files(self, files: list[FileTouched]) -> None:
        """Files that the script touched, each said once: what a process told of counts more than
        what a look into the folder found before."""
        every = dict.fromkeys([*self.record.files, *files])
        told = {file.path for file in every if not file.listed}
        self.change(files=tuple(file for file in every if not file.listed or file.path not in told))
