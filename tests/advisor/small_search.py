"""The trials of a small search on paper, and of its confirmation."""

from ..on_paper import GIB, trial_of

# samples/s: 40, 80, 200, 210
STEPS = {4: 0.1, 8: 0.1, 32: 0.16, 64: 0.3048}


def search_of(steps=None, **changes):
    return [
        trial_of(size, time, peak=GIB + size * 10**6, **changes)
        for size, time in (steps or STEPS).items()
    ]


def confirm(size, step_s, worker=1, **changes):
    rest = {"peak": GIB + size * 10**6, **changes}
    return trial_of(size, step_s, purpose="confirm", worker=worker, **rest)


CONFIRMED = (confirm(32, 0.16), confirm(64, 0.3048), confirm(32, 0.16), confirm(64, 0.3048))
