"""Memory that a step keeps, told from what else moves it."""

import math
import random

import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.advisor.measured.creep import (
    BLOCK_STEPS,
    NUM_BLOCKS,
    Blocks,
    Keeping,
    keeping_of,
    rise_of,
)
from batchadvisor.records import KeptTensors, MemoryCreep, Observed

from ..on_paper import numbered, record_of, trial_of

STEADY_RUNS = 1000
CREEPING_RUNS = 500


def readings(seed, num_steps, share=0.0):
    """Bytes between steps, with what an allocator, a collector and the data do to them.

    Each is yielded with what it would be right after a collection.

    Args:
        share: of the first reading that each step keeps.
    """
    draw = random.Random(seed)
    base = 10 ** draw.uniform(7, 10.5)
    longer, often = draw.choice([0, 0, draw.uniform(0, 0.1)]), draw.uniform(0.05, 0.5)
    # What waits for the collector: seldom and much in steady runs, so that it looks like a rise.
    most, longest = (0.02, 40) if share else (0.1, 150)
    tooth, period = draw.choice([0, 0, draw.uniform(0, most)]), draw.randint(10, longest)
    pools = [draw.randint(1, num_steps) for _ in range(draw.choice([0, 0, 1, 2, 3]))]
    pool = draw.uniform(0, 0.05)
    warm, pace = draw.choice([0, draw.uniform(0, 0.1)]), draw.uniform(5, 60)
    noise = draw.choice([0, 0, draw.uniform(0, 0.003)])
    for step in range(1, num_steps + 1):
        level = 1 + share * step + pool * sum(made <= step for made in pools)
        level += warm * (1 - math.exp(-step / pace))
        rubbish = tooth * (step % period) / period
        if draw.random() < often:
            level += longer * draw.random()
        scale = base * (1 + draw.gauss(0, noise))
        yield int(scale * (level + rubbish)), int(scale * level)


def found_at(series):
    """The step at which a rise is found, `None` if it is not."""
    blocks, due = Blocks(), 1
    for step, (reading, collected) in enumerate(series, 1):
        if step < due:
            continue
        if blocks.add(reading) and (rise := rise_of(blocks.lows)) is not None:
            if rise.outlasts(collected):
                return step
            blocks.forget()
        due = step + blocks.stride
    return None


class TestRises:
    def test_steady_runs_raise_no_alarm(self):
        assert [s for s in range(STEADY_RUNS) if found_at(readings(s, 600)) is not None] == []

    def test_a_thousandth_a_step_is_found_within_200_steps(self):
        found = [found_at(readings(10**6 + s, 200, 0.001)) for s in range(CREEPING_RUNS)]
        assert None not in found

    def test_a_slow_one_is_found_later(self):
        assert 5000 < found_at((10**9 + 10**4 * step,) * 2 for step in range(20_000)) <= 20_000

    def test_a_long_training_costs_few_readings(self):
        blocks, steps, num_readings = Blocks(), 0, 0
        while steps < 10**6:
            blocks.add(10**9)
            steps += blocks.stride
            num_readings += 1
        assert num_readings < 4000
        assert len(blocks.lows) < 2 * NUM_BLOCKS

    def test_too_few_blocks_say_nothing(self):
        lows = [10**9 + block * 10**8 for block in range(NUM_BLOCKS - 1)]
        assert rise_of(lows) is None
        rise = rise_of([*lows, 2 * 10**9 + 10**8])
        assert (rise.first_bytes, rise.last_bytes) == (10**9, 2 * 10**9 + 10**8)
        assert rise.num_blocks == NUM_BLOCKS - 1
        assert rise.outlasts(2 * 10**9)
        assert not rise.outlasts(11 * 10**8)

    def test_jumps_and_a_heap_that_warms_up_are_no_rise(self):
        assert rise_of([100] * 5 + [200] * 5) is None
        assert rise_of([0] * NUM_BLOCKS) is None  # a device that holds nothing of torch's
        assert rise_of([int(1e6 * (2 - 0.7**block)) for block in range(NUM_BLOCKS)]) is None


def look(num_steps=20, tensors=0, nodes=0, **changes):
    more_bytes = 100 * tensors
    counts = {"more_tensors": tensors, "more_bytes": more_bytes, "more_nodes": nodes}
    return KeptTensors(num_steps=num_steps, **counts, **changes)


LOSSES = look(20, 20, nodes=120, with_graph=True, holder="losses", holder_kind="list")
TOTAL = look(20, nodes=140, with_graph=True, holder="total", holder_kind="tensor")
CACHE = look(20, 20, holder="cache", holder_kind="dict")


def creep_of(advice):
    """The finding, `None` where there is none."""
    return next((found for found in advice.findings if found.rule == "memory.creep"), None)


class TestLooks:
    def test_a_tensor_a_step_at_every_size(self):
        keeping = keeping_of([look(20, 20), look(12, 13), look(40, 41)])
        assert isinstance(keeping, Keeping)
        assert keeping.tensors == pytest.approx(1.025, rel=0.1)

    @pytest.mark.parametrize(
        "looks",
        [
            [look(20, 0), look(20, 1)],
            [look(20, 20), look(20, 0)],  # the first trial filled something
            [look(20, 20), look(20, 20, is_bounded=True)],
            [look(20, nodes=400), look(20, nodes=-380)],  # sequences of another length
        ],
    )
    def test_nothing_is_kept(self, looks):
        assert keeping_of(looks) is None

    @pytest.mark.parametrize(
        ("kept", "message", "remedy"),
        [
            (LOSSES, "each step keeps 1 tensor more", "losses.append(loss.item())"),
            (TOTAL, "adds 7 nodes to an autograd graph", "total += loss.item()"),
            (CACHE, "each step keeps 1 tensor more", "bound `cache`"),
        ],
    )
    def test_a_run_names_it_with_the_remedy(self, kept, message, remedy):
        trials = numbered(*(trial_of(size, 0.1, kept=kept) for size in (8, 32)))
        finding = creep_of(advise(record_of(trials)))
        assert finding.severity == "warning"
        assert message in finding.message
        assert f"`{kept.holder}`" in finding.message
        assert remedy in finding.remedy

    def test_a_run_of_few_steps_says_that_it_cannot_tell(self):
        advice = advise(record_of(numbered(trial_of(8, 0.1, kept=look(14, 14)))))
        assert creep_of(advice) is None
        assert "14 steps are too few" in advice.unavailable["memory_creep"]


@pytest.mark.parametrize(
    ("kept", "told"),
    [(LOSSES, "`losses`"), (None, "no tensor of Python's"), (look(32, 0), "no tensor of Python's")],
)
def test_a_training_says_how_fast_until_when_and_what_explains_it(kept, told):
    creep = MemoryCreep(
        source="resident memory",
        first_bytes=10**9,
        last_bytes=10**9 + 144 * 10**6,
        num_steps=(NUM_BLOCKS - 1) * BLOCK_STEPS,
        kept=kept,
    )
    trials = numbered(trial_of(8, 0.1, peak=2 * 10**9))
    observed = Observed(framework="plain", creep=creep)
    finding = creep_of(advise(record_of(trials, observed=observed)))
    assert "rises by 977 KiB a step" in finding.message
    assert "(estimate)" in finding.message
    assert told in finding.message
    assert ("losses.append(loss.item())" in finding.remedy) is (kept is LOSSES)
