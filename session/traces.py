"""After a profiled window: the trace made valid, packed, and read into the trial."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import msgspec

from ..errors import BatchAdvisorError
from ..records import Profile, Trial


def with_profile(trial: Trial, folder: Path) -> Trial:
    """The trial with its trace repaired, packed and summarised; a failure becomes a reason."""
    # Reading traces takes numpy, which no run should wait for before its first trial.
    from ..probes.trace.repair import repair
    from ..probes.trace.summary import summarise

    profile = trial.profile
    if profile is None or profile.trace is None:
        return trial
    path = folder / profile.trace
    try:
        repair(path)
        packed = _pack(path)
        found = summarise(packed, str(packed.relative_to(folder)))
    except (BatchAdvisorError, OSError) as error:
        found = Profile(
            trace=profile.trace if path.exists() else None,
            num_steps=profile.num_steps,
            unavailable={"*": f"the trace could not be read: {error}"},
        )
    return msgspec.structs.replace(trial, profile=found)


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
