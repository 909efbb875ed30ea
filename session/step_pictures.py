"""The steps of a run, drawn from the trace that it left in its folder."""

from __future__ import annotations

import functools
from pathlib import Path

from ..errors import BatchAdvisorError
from ..records import Advice, Profile, RunRecord, Trial
from ..records.anatomy import TraceAnatomy
from ..reports.anatomy import Anatomies

KEPT_PICTURES = 16
"""Traces whose pictures are kept in memory while pages are asked for again."""


def pictures_of(record: RunRecord, advice: Advice, folder: Path) -> Anatomies:
    """The pictures of the size that the report is about, or why there are none.

    Args:
        advice: on the record; of its recommended size the steps are drawn.
        folder: in which the record stands; traces are named from there.
    """
    from ..reports.builder.anatomy import of_run

    trial = _drawn_trial(record, advice)
    if trial is None or trial.profile is None:
        return of_run(None, TraceAnatomy(trace="", unavailable=_why_none(record)))
    ranks = 1 if record.distribution is None else record.distribution.world_size
    return of_run(trial, _read(trial.profile, folder), ranks)


def _drawn_trial(record: RunRecord, advice: Advice) -> Trial | None:
    """The latest profiled trial of the recommended size, else of the largest that has a trace."""
    profiled = [
        trial
        for trial in record.trials
        if trial.ran and trial.profile is not None and trial.profile.trace
    ]
    size = None if advice.recommended is None else advice.recommended.batch_size
    own = [trial for trial in profiled if trial.batch_size == size]
    if own:
        return own[-1]
    return max(profiled, key=lambda trial: (trial.batch_size, trial.ordinal), default=None)


def _why_none(record: RunRecord) -> str:
    """Why no trial has a trace."""
    reasons = [
        trial.profile.unavailable.get("*") or trial.profile.unavailable.get("trace")
        for trial in record.trials
        if trial.profile is not None
    ]
    return next((reason for reason in reasons if reason), "no size of this run was profiled")


def _read(profile: Profile, folder: Path) -> TraceAnatomy:
    name = profile.trace or ""
    path = folder / name
    try:
        if not path.resolve().is_relative_to(folder.resolve()):
            return TraceAnatomy(trace=name, unavailable="the trace is not in the run's folder")
        state = path.stat()
    except OSError:
        why = f"the trace {name} is not in the run's folder any more"
        return TraceAnatomy(trace=name, unavailable=why)
    return _drawn(path, name, state.st_size, state.st_mtime_ns)


@functools.lru_cache(maxsize=KEPT_PICTURES)
def _drawn(path: Path, name: str, _size: int, _changed_ns: int) -> TraceAnatomy:
    """What the trace shows; read again when the file has changed."""
    from ..probes.trace.anatomy import anatomy_of
    from ..probes.trace.metrics import Analysis
    from ..probes.trace.reader import read_trace

    try:
        return anatomy_of(Analysis(read_trace(path)), name)
    except BatchAdvisorError as error:
        return TraceAnatomy(trace=name, unavailable=f"the trace could not be read: {error.what}")
