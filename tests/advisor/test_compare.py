"""Two runs side by side: a difference is said only where the intervals allow it."""

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.advisor.compare import MEMORY_NOISE, compare
from batchadvisor.records import DeviceInfo, ScriptInfo, Tokens, Turns, Versions

from ..on_paper import discovery_of, exactly, numbered, record_of, trial_of


def record(rates, *, relative=0.01, num_samples=30, peak=1000, name="A", torch="2.9"):
    trials = (
        trial_of(
            size,
            size / rate,
            peak=peak * size,
            samples_per_s=exactly(rate, relative, num_samples),
        )
        for size, rate in rates.items()
    )
    device = DeviceInfo(
        kind="cuda", name=name, total_bytes=10**9, capacity_bytes=10**9, capacity_source=""
    )
    versions = Versions(batchadvisor="0", python="3", torch=torch)
    return record_of(numbered(*trials), device=device, versions=versions)


def held(before, after):
    return compare(before, after, advise(before), advise(after))


def rates(comparison):
    return {
        difference.batch_before: difference
        for difference in comparison.sizes
        if difference.quantity == "samples_per_s"
    }


@pytest.mark.parametrize(
    ("after", "change"), [(150, "more"), (60, "less"), (101, "cannot tell"), (99, "cannot tell")]
)
def test_a_change_is_told_only_beyond_both_intervals(after, change):
    comparison = held(record({8: 100.0}), record({8: float(after)}))
    assert rates(comparison)[8].change == change
    assert comparison.recommended.change == change
    assert comparison.recommended.ratio == pytest.approx(after / 100)


def test_the_interval_of_the_ratio_holds_every_pair():
    difference = rates(held(record({8: 100.0}, relative=0.1), record({8: 150.0}, relative=0.05)))[8]
    assert difference.ratio_low == pytest.approx(150 * 0.95 / (100 * 1.1))
    assert difference.ratio_high == pytest.approx(150 * 1.05 / (100 * 0.9))


@pytest.mark.parametrize(("after", "change"), [(130, "cannot tell"), (200, "more"), (60, "less")])
def test_what_one_run_moved_by_is_no_change_between_two(after, change):
    trials = numbered(
        trial_of(8, 8 / 100, samples_per_s=exactly(100.0, 0.01)),
        trial_of(8, 8 / 120, samples_per_s=exactly(120.0, 0.01), worker=1, purpose="confirm"),
    )
    moved, steady = record_of(trials, device=record({}).device), record({8: float(after)})
    comparison = held(moved, steady)
    assert comparison.moved == pytest.approx(1.2)
    assert rates(comparison)[8].change == change
    assert held(steady, moved).moved == comparison.moved


@pytest.mark.parametrize("micro_batches", [1, 4])
def test_turns_are_a_reading_too(micro_batches):
    step_s = 8 * micro_batches / 100
    turns = Turns(sizes=(8, 16), step_s=((1.25 * step_s, 2 * step_s),) * 12)
    rate = exactly(100.0, 0.01)
    trials = numbered(
        trial_of(8, step_s, samples_per_s=rate, micro_batches=micro_batches),
        trial_of(16, 2 * step_s, samples_per_s=rate, micro_batches=micro_batches),
        trial_of(16, kind="turns", turns=turns, micro_batches=micro_batches),
    )
    moved = record_of(trials, device=record({}).device)
    assert held(moved, record({8: 100.0})).moved == pytest.approx(1.25)


def test_without_a_second_reading_it_is_not_known_what_moves():
    assert held(record({8: 100.0}), record({8: 100.0})).moved is None


def test_it_reads_the_same_from_either_side():
    first, second = record({8: 100.0, 16: 150.0}), record({8: 140.0, 16: 149.0})
    there, back = rates(held(first, second)), rates(held(second, first))
    turned = {"more": "less", "less": "more", "cannot tell": "cannot tell"}
    for size in (8, 16):
        assert there[size].change == turned[back[size].change]
        assert there[size].ratio == pytest.approx(1 / back[size].ratio)


def test_a_run_does_not_differ_from_itself():
    run = record({8: 100.0, 16: 150.0})
    comparison = held(run, run)
    assert {difference.change for difference in comparison.sizes} == {"cannot tell"}
    assert comparison.differs == ()
    assert comparison.same_device
    assert comparison.same_script


def test_one_value_alone_says_nothing():
    comparison = held(record({8: 100.0}, num_samples=1, relative=0), record({8: 200.0}))
    assert rates(comparison)[8].change == "cannot tell"


@pytest.mark.parametrize(
    ("factor", "change"),
    [(1 + 2 * MEMORY_NOISE, "more"), (1 - 2 * MEMORY_NOISE, "less"), (1.0, "cannot tell")],
)
def test_memory_differs_beyond_its_noise(factor, change):
    comparison = held(record({8: 100.0}), record({8: 100.0}, peak=1000 * factor))
    peak = next(
        difference for difference in comparison.sizes if difference.quantity == "peak_bytes"
    )
    assert peak.change == change


def test_other_devices_and_versions_are_named():
    comparison = held(record({8: 1.0}), record({8: 1.0}, name="B", torch="2.10"))
    assert not comparison.same_device
    assert comparison.same_script
    assert {row[0] for row in comparison.differs} == {"device", "torch"}
    assert ("torch", "2.9", "2.10") in comparison.differs


def test_another_script_is_named_and_other_arguments_are_not_another_script():
    run = record({8: 1.0})
    other = msgspec.structs.replace(run, script=ScriptInfo(path="u.py"))
    assert not held(run, other).same_script
    tuned = msgspec.structs.replace(run, script=ScriptInfo(path="train.py", arguments=("--amp",)))
    assert held(run, tuned).same_script
    assert held(run, tuned).differs == (("script", "train.py", "train.py --amp"),)


def test_the_same_text_is_the_same_script_wherever_it_was():
    run = record({8: 1.0})
    here, there, other = (
        msgspec.structs.replace(run, script=ScriptInfo(path=path, digest=digest))
        for path, digest in (("a/train.py", "1f"), ("b/copy.py", "1f"), ("b/copy.py", "2e"))
    )
    assert held(here, there).same_script
    assert held(here, there).differs == ()
    assert not held(here, other).same_script


def test_sizes_of_one_run_are_listed_and_nothing_is_made_up():
    comparison = held(record({8: 100.0, 16: 110.0}), record({8: 100.0, 32: 120.0}))
    assert (comparison.only_before, comparison.only_after) == ((16,), (32,))
    empty = record({})
    assert held(empty, record({8: 1.0})).recommended is None
    assert held(empty, empty).sizes == ()


def with_tokens(rate, each):
    """A record whose samples have so many real tokens."""
    tokens = Tokens(
        num_batches=9,
        evidence="attention mask",
        real_per_step=8.0 * each,
        real_per_s=exactly(rate * each, 0.01, 30),
    )
    plain = record({8: rate})
    (trial,) = plain.trials
    return msgspec.structs.replace(
        plain, trials=(msgspec.structs.replace(trial, tokens=tokens),), discovery=discovery_of()
    )


def test_real_tokens_are_compared_beside_samples():
    """Samples that became half as long come twice as fast, and no token is faster."""
    comparison = held(with_tokens(100.0, 40), with_tokens(200.0, 20))
    assert comparison.recommended.change == "more"
    assert comparison.tokens.quantity == "real_tokens_per_s"
    assert comparison.tokens.ratio == pytest.approx(1.0)
    assert comparison.tokens.change == "cannot tell"
    (size,) = [each for each in comparison.sizes if each.quantity == "real_tokens_per_s"]
    assert size.before.median == pytest.approx(4000)


def test_tokens_that_one_run_does_not_know_are_not_compared():
    comparison = held(with_tokens(100.0, 40), record({8: 200.0}))
    assert comparison.tokens is None
