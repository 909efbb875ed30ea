"""Small records on paper, one for each rule that chooses, or says why there is no size."""

from batchadvisor.records import Goal, NormLayers, StepQuality, Turns

from ..on_paper import (
    CPU,
    GIB,
    discovery_of,
    failure_of,
    metered,
    numbered,
    record_of,
    trial_of,
)

STEPS = {8: 0.1, 32: 0.16, 64: 0.3048}
"""80, 200 and 210 samples/s."""
FALLING = {8: 0.1, 32: 0.16, 64: 0.33}
"""80, 200 and 194 samples/s."""
SHORT_LAST_BATCH = discovery_of(num_samples=512 * 40 + 3)
"""512 leaves 3 samples over; 488 and 504 leave more than half a batch."""
OF_100 = discovery_of(native=4, num_samples=100)
"""16 leaves 4 samples over, 20 none."""
WITH_BATCH_NORM = discovery_of(norm_layers=NormLayers(batch_norm=1))
CONTENDED = StepQuality(num_steps=20, num_clean=0, num_disturbed=20, method="low quantile")
UNEVEN = ((0.02, 0.084), (0.02, 0.54), (0.03, 0.17), (0.01, 0.38), (0.03, 0.144))
"""Rounds of 8 and 128 that do not tell which is faster."""


def beside_others(sizes, step_s):
    """Turns with a fifth of each step lost to others."""
    lost_s = [[0.2 * each for each in row] for row in step_s]
    return Turns(sizes=sizes, step_s=step_s, lost_s=lost_s)


def searched(steps, **changes):
    return [trial_of(size, step_s, **changes) for size, step_s in steps.items()]


def again(*pairs, **changes):
    """Confirm trials of these (size, seconds a step), in this order."""
    changes = {"purpose": "confirm", "worker": 1, **changes}
    return [trial_of(size, step_s, **changes) for size, step_s in pairs]


def of(*trials, kind="knee", goal=None, **changes):
    return record_of(numbered(*trials), goal=goal or Goal(kind=kind), **changes)


def near_512(*rates, **changes):
    """Sizes at these samples per second."""
    pairs = ((8, 100), (64, 400), *rates)
    return of(
        *(trial_of(size, size / rate) for size, rate in pairs),
        kind="throughput",
        discovery=SHORT_LAST_BATCH,
        **changes,
    )


def beside_64(step_s):
    """The knee is 32; in the fresh process it takes so long, twice each time, and 64 as before."""
    series = [pair for seconds in step_s for pair in ((32, seconds), (64, 0.3048))]
    return again(*series)


THRIFTY = {"lasted_s": 60.0, "half_width": 0.001}
LUCKY = trial_of(512, 512 / 230, half_width=0.2)
"""Read faster than 64, with an interval that begins far below."""

FLAT = {size: size / rate for size, rate in ((8, 93.5), (12, 96.2), (32, 99.2), (64, 100))}
"""The script's own 8 is just outside the tolerance, and 12 just inside."""

OF_THE_GOAL = {
    "only timed": of(trial_of(8, 0.1)),
    "largest": of(*(trial_of(size, peak=GIB * size) for size in (8, 32)), kind="memory"),
    "next to the largest": of(
        *(trial_of(size, peak=size * 2**20) for size in (8, 64, 504, 512)),
        kind="memory",
        discovery=SHORT_LAST_BATCH,
    ),
    "next to the thriftiest": of(
        metered(8, 0.1, 300),
        metered(64, 0.2, 300),
        metered(488, 0.493, 100, **THRIFTY),
        metered(512, 0.51, 100, **THRIFTY),
        kind="energy",
        discovery=SHORT_LAST_BATCH,
    ),
    "next to the fastest": near_512((488, 985), (512, 1000)),
    "loader sets the pace": of(trial_of(8, 0.1, wait_s=0.04), trial_of(4, 0.06)),
    "thriftiest": of(metered(8, 0.1, 100), metered(32, 0.2, 300), kind="energy"),
    "fastest": of(*searched(STEPS), kind="throughput"),
    "faster again": of(
        *searched(STEPS),
        *again((64, 0.64), (32, 0.16), (64, 0.64), (32, 0.16)),
        kind="throughput",
    ),
    "fastest confirmed": of(*searched(STEPS), *again((32, 0.16)), kind="throughput"),
}
OF_THE_OWN_SIZE = {
    "asked for": of(
        *searched({32: 0.16, 64: 0.3048}), goal=Goal(sizes=(32, 64)), discovery=discovery_of()
    ),
    "not better": of(
        *searched({8: 0.1, 32: 0.16}),
        trial_of(
            32,
            kind="turns",
            purpose="confirm",
            turns=Turns(sizes=(8, 32), step_s=((0.1, 0.8),) * 12),
        ),
        device=CPU,
    ),
    "hardly faster": of(
        *searched({4: 0.0518, 8: 0.1, 32: 0.4}),
        trial_of(
            8, kind="turns", turns=Turns(sizes=(4, 8), step_s=((0.0538, 0.1), (0.05, 0.1)) * 3)
        ),
        device=CPU,
    ),
    "too noisy": of(*searched({4: 0.2, 8: 0.1, 12: 0.135}, half_width=0.1), kind="throughput"),
    "not compared": of(*searched({32: 0.16, 64: 0.3048})),
    "surely faster": of(
        *searched({8: 0.02, 32: 0.06, 128: 0.2}, quality=CONTENDED),
        trial_of(32, kind="turns", turns=beside_others((8, 32), ((0.02, 0.06),) * 12)),
        trial_of(128, kind="turns", turns=beside_others((8, 128), UNEVEN)),
        device=CPU,
    ),
    "nothing larger": of(*searched({1: 0.05, 8: 0.1}), stop_reason="the budget is spent"),
}
OF_NOTHING = {
    "no energy": of(trial_of(8, 0.1), kind="energy"),
    "too large": of(trial_of(8, 0.1, peak=79 * GIB)),
    "never delivered": of(trial_of(8, 0.1), discovery=discovery_of(num_samples=4)),
    "never timed": of(*(trial_of(size, peak=size * GIB) for size in (8, 64))),
    "too early": of(trial_of(8, peak=8 * GIB), stop_reason="the budget is spent"),
    "out of memory": of(failure_of(8), failure_of(2)),
    "failed": of(failure_of(8, "exception")),
    "nothing ran": of(),
}
KNEES = {
    "within the tolerance": of(*searched(STEPS)),
    "within the tolerance and fastest": of(*searched({8: 0.1, 32: 0.16, 64: 0.34})),
    "worth a change": of(*searched(FLAT)),
    "highest of the search": of(
        *searched({8: 0.02, 64: 0.025}),
        trial_of(256, 0.105, half_width=0.3),
        *again((64, 0.025), (8, 0.02), (64, 0.025), (8, 0.02)),
    ),
    "highest until measured again": of(
        *searched({8: 0.02, 64: 0.025}),
        trial_of(256, 0.105, half_width=0.3),
        *again((64, 0.0266), (8, 0.02), (64, 0.0266), (8, 0.02)),
    ),
    "clean beside the smallest": of(
        *searched({4: 0.1, 16: 0.0975, 20: 0.121, 64: 0.375}), discovery=OF_100
    ),
    "clean beside the fastest": of(*searched({4: 0.1, 16: 0.1, 20: 0.124}), discovery=OF_100),
    "large enough for BatchNorm": of(
        *searched({4: 0.04, 8: 0.1, 16: 0.2}), discovery=WITH_BATCH_NORM
    ),
    "faster than the fastest": of(
        *searched(FALLING), *again((32, 0.19), (64, 0.3), (32, 0.19), (64, 0.3))
    ),
    "in place of the fastest": of(
        *searched({8: 0.1, 32: 0.16, 44: 0.23, 128: 0.655}),
        *again((32, 0.25), (128, 0.5), (32, 0.25), (128, 0.5), (44, 0.27)),
    ),
}
DOUBTED = of(*searched(STEPS), *beside_64((0.185, 0.155)))
"""All in all 32 reads less than 95 % of 64, and the noise leaves it open."""
CONFIRMED = of(*searched(STEPS), *beside_64((0.16, 0.16)))
RECORDS = {**OF_THE_GOAL, **KNEES, **OF_THE_OWN_SIZE, **OF_NOTHING}
