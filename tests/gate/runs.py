"""Runs of a stored record's own size, with other times, peaks and moments."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import msgspec
from batchadvisor.features.gate.evidence import Run
from batchadvisor.records import Trial
from batchadvisor.session.recording.store import read_record
from batchadvisor.spread import inverse, scaled

STORED = read_record(Path(__file__).parents[1] / "data/records/char_gpt_cpu.json")
SIZE = 8
LASTS_S = 8.0
START = datetime(2026, 11, 1, tzinfo=timezone.utc)


def run(
    name: str, at_s: float, times: float = 1.0, peak: float = 1.0, size: int = SIZE, **changes: Any
) -> Run:
    """A run that began at a moment, and whose step took so many times as long as the stored one."""
    (stored, *_) = (
        trial
        for trial in STORED.trials
        if trial.batch_size == SIZE and trial.kind == "timed" and trial.step_s is not None
    )
    record = msgspec.structs.replace(
        STORED,
        started_at=(START + timedelta(seconds=at_s)).isoformat(timespec="seconds"),
        elapsed_s=LASTS_S,
        trials=(_with(stored, times, peak, size),),
        **changes,
    )
    return Run(record, Path(name))


def _with(stored: Trial, times: float, peak: float, size: int) -> Trial:
    assert stored.step_s is not None
    assert stored.memory is not None
    step_s = scaled(stored.step_s, times)
    peak_bytes = int(stored.memory.peak_bytes * peak)
    return msgspec.structs.replace(
        stored,
        batch_size=size,
        arrived_batch_size=size,
        step_s=step_s,
        samples_per_s=inverse(step_s, size),
        memory=msgspec.structs.replace(stored.memory, peak_bytes=peak_bytes),
    )


def in_turn(pairs: list[tuple[float, float]]) -> tuple[list[Run], list[Run]]:
    """Rounds of a run before and one after, with the times of each as shares of the stored one."""
    before, after = [], []
    for at, (times_before, times_after) in enumerate(pairs):
        before.append(run(f"before/{at}", 20.0 * at, times_before))
        after.append(run(f"after/{at}", 20.0 * at + LASTS_S + 1, times_after))
    return before, after


def write(folder: Path, runs: list[Run]) -> Path:
    """Writes them as folders of a folder."""
    for each in runs:
        place = folder / each.path.name
        place.mkdir(parents=True)
        (place / "record.json").write_bytes(msgspec.json.encode(each.record))
    return folder


def changed(run: Run, **changes: Any) -> Run:
    """The run with other fields of its record."""
    return Run(msgspec.structs.replace(run.record, **changes), run.path)
