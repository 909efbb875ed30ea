"""Writes a run's files in a thread of its own, so that a slow disk holds no training.

The thread lives as long as one writing: nothing of ours runs while a loader forks its workers,
most of the time. One state is written at a time; while it is, a newer one is refused.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import BatchAdvisorError
from ..records import RunRecord
from ..session.recording.event_files import EventStore
from ..session.recording.store import RunStore


@dataclass(frozen=True, slots=True)
class News:
    """Things to write.

    Attributes:
        record: as it stands.
        rows: for `samples.jsonl`.
        step: of the scalars.
        scalars: by their tags; none are written if empty.
    """

    record: RunRecord
    rows: list[dict[str, Any]] = field(default_factory=list)
    step: int = 0
    scalars: dict[str, float] = field(default_factory=dict)


class Saver:
    """Writes news, one after the other.

    Args:
        store: of the run.
        folder: for the scalars.

    Attributes:
        cost_s: how long the last writing took.
    """

    def __init__(self, store: RunStore, folder: Path) -> None:
        self.cost_s = 0.0
        self._store = store
        self._folder = folder
        self._scalars: Any = None
        self._problem = ""
        self._said: set[str] = set()
        self._thread: threading.Thread | None = None

    @property
    def busy(self) -> bool:
        """Whether something is being written."""
        return self._thread is not None and self._thread.is_alive()

    def begin(self, news: News) -> bool:
        """Writes in the background.

        Returns:
            Whether it will; not while something is being written.
        """
        if self.busy:
            return False
        self._thread = threading.Thread(
            target=self._write, args=(news,), name="batchadvisor-save", daemon=True
        )
        self._thread.start()
        return True

    def write(self, news: News) -> None:
        """Writes now, after what is being written."""
        self.wait()
        self._write(news)

    def wait(self) -> None:
        """Waits until nothing is being written."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def close(self) -> None:
        """Nothing more will come."""
        self.wait()
        if self._scalars is not None:
            self._scalars.close()
            self._scalars = None

    def new_problem(self) -> str:
        """Says once what could not be written; empty if all could."""
        return self._once(self._problem)

    def new_event_problem(self) -> str:
        """Why there are no events for TensorBoard, or no more, once; they cost no record."""
        return self._once(self._store.problem if isinstance(self._store, EventStore) else "")

    def _once(self, text: str) -> str:
        if not text or text in self._said:
            return ""
        self._said.add(text)
        return text

    def _write(self, news: News) -> None:
        """A failure costs what it could not write, and is told at the next boundary."""
        began_s = time.monotonic()
        try:
            self._store.save(news.record)
            self._store.append(news.rows)
            if news.scalars:
                self._add_scalars(news)
        except (OSError, BatchAdvisorError) as error:
            self._problem = _why(error)
        except Exception as error:  # noqa: BLE001  nothing above would hear of it
            self._problem = f"{type(error).__name__}: {error}"
        self.cost_s = time.monotonic() - began_s

    def _add_scalars(self, news: News) -> None:
        from ..reports.events.scalars import ScalarFile

        if self._scalars is None:
            self._scalars = ScalarFile(self._folder)
        self._scalars.add(news.step, news.scalars)


def _why(error: Exception) -> str:
    """The system's own words; the store's remedies are those of `run`."""
    cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
    return str(getattr(cause, "strerror", None) or cause)
