"""The contents of the tab in TensorBoard: all entries listed, each read when asked for."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...advisor.advise import advise
from ...errors import BatchAdvisorError, UsageError
from ...reports.anatomy import Anatomies
from ...reports.blocks import Document
from ...reports.report import Report
from ...session.recording.store import read_record
from .logdir import Heads, Place, any_below, find
from .records import Entry, Shown

FRESH_S = 1.0
"""A listing younger than this is taken as it is."""
LISTING_SHARE = 0.05
"""Listing takes at most this share of the time, so that a run beside it is not disturbed."""
RETRY_S = 10.0
"""An empty log directory is not walked more often than this."""
SWITCH_S = 2e-4
"""Threads take turns so often while a log directory is listed."""
MAX_KEPT = 256
"""Entries that are kept after they were read; a record takes some 100 KiB, a summary less."""
MAX_DRAWN = 8
"""Entries that are kept with pictures of their steps, which take megabytes."""


class Board:
    """Reads log directories for the tab. All methods may be called from several threads.

    Args:
        roots: log directories, each with the name it goes by; empty where there is only one.
    """

    def __init__(self, roots: Sequence[tuple[str, Path]]) -> None:
        self._roots = tuple(roots)
        self._listing = threading.Lock()
        self._reading = threading.Lock()
        self._decoding = threading.Lock()
        self._keeping = threading.Lock()
        self._heads: Heads = {}
        self._places: dict[str, Place] = {}
        self._listed_s = float("-inf")
        self._fresh_s = FRESH_S
        self._retry_s = RETRY_S
        self._looked_s = float("-inf")
        self._active = False
        self._kept: OrderedDict[str, Shown] = OrderedDict()

    def active(self) -> bool:
        """Whether there is anything to show; walks until the first find, and not too often."""
        started_s = time.monotonic()
        if not self._active and started_s - self._looked_s > self._retry_s:
            self._active = any_below(self._roots) or bool(self.entries())
            self._looked_s = time.monotonic()
            self._retry_s = max(RETRY_S, (self._looked_s - started_s) / LISTING_SHARE)
        return self._active

    def entries(self) -> tuple[Entry, ...]:
        """Everything below the log directories, the newest first. Reads no record and no trace."""
        return tuple(place.entry for place in self._listed().values())

    def show(self, key: str) -> Shown:
        """Reads one entry, or takes what was read since it last changed.

        Raises:
            UsageError: there is no such entry.
        """
        place = self._place(key)
        kept = self._kept_of(place)
        if kept is not None:
            return kept
        if place.entry.kind == "run":
            # msgspec crashes where two threads decode a type for the first time.
            with self._decoding:
                return self._keep(_run(place))
        if place.entry.kind == "devices":
            return self._keep(Shown(entry=place.entry))
        with self._reading:  # one folder at a time: a trace can be large
            kept = self._kept_of(place)
            return kept if kept is not None else self._keep(_traces(place))

    def report(self, shown: Shown) -> Report:
        """The report of a run that was read, on one device or on several.

        Raises:
            UsageError: its folder is gone, or no device was measured.
        """
        from ...session.report import devices_report_of, report_of
        from ...session.run_traces import with_flames

        folder = self.folder(shown.entry.key)
        if shown.record is not None:
            with self._reading:  # one at a time: a trace can be large
                return with_flames(report_of(shown.record, folder), folder)
        report = devices_report_of(folder)
        if report is None:
            raise UsageError(f"{folder} holds no run any more.")
        return report

    def pictures(self, shown: Shown, report: Report | None = None) -> Anatomies | None:
        """The pictures of the steps of an entry that was read; `None` where it has none.

        Args:
            report: of a run, as `report` gives it.

        Raises:
            UsageError: its folder is gone.
        """
        from ...reports.builder.anatomy import of_analysis
        from ...session.run_traces import pictures_of

        if shown.analysis is not None:
            return of_analysis(shown.analysis, shown.anatomies)
        if shown.record is None or report is None:
            return None
        with self._reading:  # one at a time: a trace can be large
            return pictures_of(report, shown.record, self.folder(shown.entry.key))

    def comparison(self, shown: Sequence[Shown]) -> Document | None:
        """Two runs side by side; `None` where one of them is no run.

        Raises:
            UsageError: a folder is gone.
        """
        from ...reports.builder.comparison import comparison_page
        from ...session.report import comparison_of

        first, second = shown
        if first.record is None or second.record is None:
            return None
        report = comparison_of(
            (first.record, self.folder(first.entry.key)),
            (second.record, self.folder(second.entry.key)),
        )
        return comparison_page(report)

    def folder(self, key: str) -> Path:
        """Where an entry's record or traces are.

        Raises:
            UsageError: there is no such entry.
        """
        return self._place(key).folder

    def trace(self, key: str, file: str) -> Path:
        """A trace of an entry.

        Raises:
            UsageError: there is no such entry or trace.
        """
        place = self._place(key)
        if file not in place.files:
            raise UsageError("there is no such trace.", "Reload the page: files may have gone.")
        return place.files[file]

    def _kept_of(self, place: Place) -> Shown | None:
        with self._keeping:
            kept = self._kept.get(place.entry.key)
            if kept is None or kept.entry.version != place.entry.version:
                return None
            self._kept.move_to_end(place.entry.key)
            return kept

    def _keep(self, shown: Shown) -> Shown:
        with self._keeping:
            self._kept[shown.entry.key] = shown
            while len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
            drawn = [key for key, kept in self._kept.items() if kept.anatomies]
            for key in drawn[:-MAX_DRAWN]:
                del self._kept[key]
        return shown

    def _listed(self) -> dict[str, Place]:
        with self._listing:
            started_s = time.monotonic()
            if started_s - self._listed_s > self._fresh_s:
                with _in_turn():
                    self._places = {
                        place.entry.key: place for place in find(self._roots, self._heads)
                    }
                self._listed_s = time.monotonic()
                self._fresh_s = max(FRESH_S, (self._listed_s - started_s) / LISTING_SHARE)
                self._active = self._active or bool(self._places)
            return self._places

    def _place(self, key: str) -> Place:
        place = self._listed().get(key)
        if place is None:
            raise UsageError("there is no such run.", "Reload the page: it may have gone.")
        return place


@contextlib.contextmanager
def _in_turn() -> Iterator[None]:
    """Thousands of short questions to the file system, while TensorBoard loads event files.

    After each one the interpreter's lock is asked for again; whoever holds it may keep it for the
    switch interval, 5 ms by default, and the listing would mostly wait.
    """
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(min(before_s, SWITCH_S))
    try:
        yield
    finally:
        sys.setswitchinterval(before_s)


def _run(place: Place) -> Shown:
    try:
        record = read_record(place.folder)
        return Shown(entry=place.entry, record=record, advice=advise(record))
    except BatchAdvisorError as error:
        return Shown(entry=place.entry, problem=str(error))


def _traces(place: Place) -> Shown:
    from ...session.analyze import analyze_for_page

    try:
        analysis, drawn = analyze_for_page(tuple(place.files.values()), lenient=True)
    except BatchAdvisorError as error:
        return Shown(entry=place.entry, problem=str(error))
    return Shown(entry=place.entry, analysis=analysis, anatomies=drawn)


def roots_of(logdir: str, spec: str) -> list[tuple[str, Path]]:
    """Log directories of TensorBoard's flags, each with its name.

    Args:
        logdir: `--logdir`; empty without.
        spec: `--logdir_spec`: `name:/path,/path`; empty without.

    Those that are no local folders (`gs://...`) are left out.
    """
    if logdir:
        named = [("", logdir)]
    else:
        named = []
        for part in filter(None, spec.split(",")):
            name, colon, path = part.partition(":")
            has_name = bool(colon) and not part.startswith("/") and not path.startswith("//")
            named.append((name, path) if has_name else ("", part))
    return [(name, Path(path).expanduser()) for name, path in named if "://" not in path]
