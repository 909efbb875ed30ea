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
    """The truth of two moments, before the run and after it, that is nearest to a time.

    Hosts wander by some per cent, within seconds and within minutes, and the pace of some scripts
    with them: a time is right that a bare loop took too.
    """
    steps = sorted(each_s for moment in moments for each_s in moment["steps_s"])
    between = min(max(step_s, steps[0]), steps[-1])
    joules, idle_w = (fmean(moment[key] for moment in moments) for key in ("joules", "idle_w"))
    return {"step_s": between, "joules": joules + idle_w * between}


STEP = 0.03
"""A step's time is right within this share, in a profile too."""


def shares(moments, trial):
    """What a profile says of the card, and what the card did in as many seconds: (share, truth).

    A profile is of its own steps or, where profiling made them longer, of the timed ones; the
    truth is the nearest between both. Its own steps are taken for as long as they are said to be
    within `STEP` of the truth: else a false time would make a false share right.
    """
    true_s = nearest(moments, trial.step_s.median)["step_s"]
    own_s = min(max(trial.profile.step_s, true_s * (1 - STEP)), true_s * (1 + STEP))
    steps_s = sorted((own_s, true_s))
    said = {"busy_s": trial.profile.busy_pct, "sm_s": trial.profile.sm_efficiency_pct}
    for key, share in said.items():
        done_s = fmean(moment[key] for moment in moments)
        least, most = (100 * done_s / each for each in reversed(steps_s))
        yield share, min(max(share, least), most)
