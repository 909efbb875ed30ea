"""Machines with seeded laws, and what every search on them must hold to."""

import random

from batchadvisor.advisor.measured.measurements import Measurements

from ..on_paper import GIB, discovery_of
from .machine import Machine

MANY_TRIALS = 22
"""No search takes more trials, confirmation and tail included."""


def random_machine(seed):
    """A machine with seeded laws: fixed cost, slope, a convex memory now and then."""
    rng = random.Random(seed)
    fixed_s = 10 ** rng.uniform(-4, -1)
    slope_s = 10 ** rng.uniform(-5, -2)
    floor_s = fixed_s * rng.choice([0, 0, 2, 5])
    capacity = rng.choice([8, 24, 80]) * GIB
    fixed_bytes = capacity * rng.uniform(0.02, 0.8)
    slope_bytes = capacity * 10 ** rng.uniform(-4.5, -2)
    bend = rng.choice([0.0, 0.0, 1e-4])
    return Machine(
        time_s=lambda size: max(floor_s, fixed_s + slope_s * size),
        memory=lambda size: fixed_bytes + slope_bytes * size * (1 + bend * size),
        capacity=capacity,
        noise=rng.choice([0.005, 0.02, 0.05]),
        memory_noise=0.01,
        seed=seed,
        discovery=discovery_of(
            native=rng.choice([1, 4, 8, 16, 32]), num_samples=rng.choice([997, 50_000, 10**6])
        ),
    )


def laws_hold(machine, result):
    """What holds for every search on every machine."""
    record = result.record
    assert result.finished, "the search does not end"
    assert len(record.trials) <= MANY_TRIALS
    ran = {past.batch_size for past in record.trials if past.ran and past.purpose != "tail"}
    assert result.size is None or result.size in ran
    if result.advice.standing == "not compared":  # no answer yet: only up to the own size
        assert result.size is None
        assert max(ran) <= machine.discovery.native_batch_size
    else:
        assert (result.size is None) == (not ran & fitting(record))
    if result.size is not None:
        assert result.size in fitting(record)
        tops = [machine.discovery.primary.num_samples, record.goal.max_batch]
        assert result.size <= min(top for top in tops if top is not None)
    # What ran out of memory is not tried again, nor anything larger.
    refused = None
    for trial in record.trials:
        if trial.purpose == "search" and refused is not None:
            assert trial.batch_size < refused
        if trial.outcome == "out_of_memory":
            refused = min(trial.batch_size, refused or trial.batch_size)


def fitting(record):
    """Sizes that ran with every clean reading below the target, or at all without readings."""
    limit = Measurements.of(record).target_bytes
    return {
        size
        for size, memory in Measurements.of(record).trusted_memory.items()
        if memory.peak_bytes <= limit
    }
