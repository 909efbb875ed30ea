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
            size, size / rate, peak=peak * size, samples_per_s=exactly(rate, relative, num_samples)
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


@pytest.mark.parametrize(
    ("after", "change"),
    [(130, "cannot tell"), (110, "cannot tell"), (200, "more"), (60, "less")],
)
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
    shared = {"micro_batches": micro_batches, "samples_per_s": exactly(100.0, 0.01)}
    trials = numbered(
        trial_of(8, step_s, **shared),
        trial_of(16, 2 * step_s, **shared),
        trial_of(16, kind="turns", turns=turns, micro_batches=micro_batches),
    )
    moved = record_of(trials, device=record({}).device)
    assert held(moved, record({8: 100.0})).moved == pytest.approx(1.25)


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
    assert (comparison.same_device, comparison.same_script) == (True, True)
    assert comparison.moved is None, "without a second reading it is not known"


def test_one_value_alone_says_nothing():
    comparison = held(record({8: 100.0}, num_samples=1, relative=0), record({8: 200.0}))
    assert rates(comparison)[8].change == "cannot tell"


@pytest.mark.parametrize(
    ("factor", "change"),
    [(1 + 2 * MEMORY_NOISE, "more"), (1 - 2 * MEMORY_NOISE, "less"), (1.0, "cannot tell")],
)
def test_memory_differs_beyond_its_noise(factor, change):
    comparison = held(record({8: 100.0}), record({8: 100.0}, peak=1000 * factor))
    (peak,) = (each for each in comparison.sizes if each.quantity == "peak_bytes")
    assert peak.change == change


def test_other_devices_and_versions_are_named():
    comparison = held(record({8: 1.0}), record({8: 1.0}, name="B", torch="2.10"))
    assert (comparison.same_device, comparison.same_script) == (False, True)
    assert {row[0] for row in comparison.differs} == {"device", "torch"}
    assert ("torch", "2.9", "2.10") in comparison.differs


TUNED = ScriptInfo(path="train.py", arguments=("--amp",))
HERE, THERE, OTHER = (
    ScriptInfo(path=path, digest=digest)
    for path, digest in (("a/train.py", "1f"), ("b/copy.py", "1f"), ("b/copy.py", "2e"))
)


@pytest.mark.parametrize(
    ("before", "after", "same", "differs"),
    [
        (ScriptInfo(path="train.py"), ScriptInfo(path="u.py"), False, ("train.py", "u.py")),
        (ScriptInfo(path="train.py"), TUNED, True, ("train.py", "train.py --amp")),
        (HERE, THERE, True, ()),
        (HERE, OTHER, False, ("a/train.py", "b/copy.py")),
    ],
    ids=["another path", "other arguments", "the same text elsewhere", "another text"],
)
def test_another_script_is_one_of_another_text(before, after, same, differs):
    first, second = (msgspec.structs.replace(record({8: 1.0}), script=it) for it in (before, after))
    comparison = held(first, second)
    assert comparison.same_script is same
    assert comparison.differs == ((("script", *differs),) if differs else ())


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
    trials = (msgspec.structs.replace(plain.trials[0], tokens=tokens),)
    return msgspec.structs.replace(plain, trials=trials, discovery=discovery_of())


def test_real_tokens_are_compared_beside_samples():
    """Samples that became half as long come twice as fast, and no token is faster."""
    comparison = held(with_tokens(100.0, 40), with_tokens(200.0, 20))
    assert comparison.recommended.change == "more"
    assert comparison.tokens.quantity == "real_tokens_per_s"
    assert comparison.tokens.ratio == pytest.approx(1.0)
    assert comparison.tokens.change == "cannot tell"
    (size,) = [each for each in comparison.sizes if each.quantity == "real_tokens_per_s"]
    assert size.before.median == pytest.approx(4000)
    assert held(with_tokens(100.0, 40), record({8: 200.0})).tokens is None, "one run knows none"
