"""What page faults cost a step on a CPU, and the variables that save them."""

from __future__ import annotations

from ...records import Trial

KEEPS_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}
"""Under these glibc maps no block by itself, and gives less than 1 TiB at the end of its heap not
back to the system (mallopt(3))."""


def share_of_faults(trial: Trial) -> float:
    """Share of a step that goes into page faults at least, 0..1; 0 where none were counted.

    Threads that run at once take their faults at once: then it is the share of their CPU time.
    """
    quality = trial.quality
    faults = quality.page_faults if quality is not None else None
    if quality is None or faults is None or trial.step_s is None:
        return 0.0
    busy_s = max(trial.step_s.median, quality.cpu_s or 0.0)
    return min(1.0, faults.num * faults.each_s / busy_s)
