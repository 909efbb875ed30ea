"""After a profiled window: the trace made valid, packed, and read into the trial."""

from __future__ import annotations

import gzip
import re
import shutil
from pathlib import Path

import msgspec

from ...errors import BatchAdvisorError
from ...records import Profile, Trial
from .store import LOG

_CUPTI_ERROR = re.compile(r"(?<!If you see )CUPTI_ERROR_[A-Z_]+")
_CUPTI_FAILED = "CUPTI initialization failed"


def with_profile(trial: Trial, folder: Path) -> Trial:
    """The trial with its trace repaired, packed and summarised; a failure becomes a reason.

    The shares are those of a timed step: profiling slows the host.
    """
    # Reading traces takes numpy, which no run should wait for before its first trial.
    from ...probes.trace.as_timed import as_timed
    from ...probes.trace.repair import repair
    from ...probes.trace.summary import summarise

    profile = trial.profile
    if profile is None or profile.trace is None:
        return trial
    path = folder / profile.trace
    try:
        repair(path)
        packed = _pack(path)
        summary = summarise(packed, str(packed.relative_to(folder)))
    except (BatchAdvisorError, OSError) as error:
        summary = Profile(
            trace=profile.trace if path.exists() else None,
            num_steps=profile.num_steps,
            unavailable={"*": f"the trace could not be read: {error}"},
        )
    summary = as_timed(_with_cupti(summary, folder / LOG), trial.step_s)
    return msgspec.structs.replace(trial, profile=summary)


def _with_cupti(profile: Profile, log: Path) -> Profile:
    """A profile that shows no GPU, with what CUPTI said to that, if it said anything."""
    if profile.busy_pct is not None:
        return profile
    said = cupti_refusal(log)
    if said is None:
        return profile
    reasons = {**profile.unavailable, "busy_pct": said}
    return msgspec.structs.replace(profile, unavailable=reasons)


def cupti_refusal(log: Path) -> str | None:
    """Why CUPTI shows no kernel, in the words that libkineto prints; `None` where it printed none.

    libkineto (CuptiActivityApi and init.cpp) names the error and says that CUDA activities will be
    missing; the trace that follows holds the host alone.
    """
    try:
        text = log.read_text(errors="replace")
    except OSError:
        return None
    codes = _CUPTI_ERROR.findall(text)
    if not codes and _CUPTI_FAILED not in text:
        return None
    return f"CUPTI failed: {codes[-1]}" if codes else "CUPTI failed to start"


def _pack(path: Path) -> Path:
    packed = path.with_name(path.name + ".gz")
    draft = path.with_name(f".draft-{packed.name}")
    try:
        with path.open("rb") as source, gzip.open(draft, "wb", compresslevel=5) as target:
            shutil.copyfileobj(source, target, 1 << 20)
        draft.replace(packed)
    finally:
        draft.unlink(missing_ok=True)
    path.unlink()
    return packed
