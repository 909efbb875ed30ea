"""What a script is by itself, without batchadvisor, at moments beside a run of it."""

import json
from pathlib import Path
from statistics import fmean

BARE = Path(__file__).with_name("bare.py")


def bare(gpu, size, **environment):
    """Seconds, busy seconds and joules of a step of `train.py`, at this moment."""
    said = gpu.run(BARE, "train.py", size, 10, 40, **environment)
    return json.loads(said.partition("TRUTH ")[2])


def nearest(moments, step_s):
    """The truth between two moments, before the run and after it, that is nearest to a time.

    Hosts wander by some per cent within minutes, and the pace of some scripts with them.
    """
    steps = sorted(moment["step_s"] for moment in moments)
    between = min(max(step_s, steps[0]), steps[-1])
    busy_s, sm_s, joules, idle_w = (
        fmean(moment[key] for moment in moments) for key in ("busy_s", "sm_s", "joules", "idle_w")
    )
    return {
        "step_s": between,
        "busy_pct": 100 * busy_s / between,
        "sm_pct": 100 * sm_s / between,
        "joules": joules + idle_w * between,
    }
