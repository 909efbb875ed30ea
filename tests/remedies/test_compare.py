"""Two processes beside each other: a gain is claimed where there is one, and nowhere else."""

import random
from array import array
from math import exp, inf, nan

import msgspec
import pytest
from batchadvisor.advisor.explain import disturbances
from batchadvisor.advisor.measured.speeds import OF_A_CPU
from batchadvisor.features.remedies.compare import (
    AS_IT_IS,
    LOOKS,
    MOST_ROUNDS,
    OTHER_BATCHES,
    ROUNDS_TO_CLAIM,
    WITH_REMEDY,
    Turn,
    checked,
    gradients_apart,
    is_enough,
    load_of,
    rates_of,
    ratio,
    said,
)
from batchadvisor.features.remedies.settings import Kept, Step
from batchadvisor.records import Cause
from batchadvisor.records.quality import StepQuality

from ..on_paper import trial_of


def window(rate):
    return trial_of(8, 8 / rate, half_width=0.02)


def rounds(gain, num_rounds, noise, seed=0, *, drift=0.0):
    """Turns of a remedy with a true gain on a machine that is slower by the round."""
    rng = random.Random(seed)
    turns = []
    for number in range(1, num_rounds + 1):
        machine = exp(rng.gauss(0, drift))
        for side, factor in ((AS_IT_IS, 1.0), (WITH_REMEDY, gain)):
            rate = 100 * factor * machine * exp(rng.gauss(0, noise))
            turns.append(Turn(side, side, number, window(rate)))
    return turns


def until_enough(gain, noise, seed):
    """What is said when no further round is made."""
    turns = rounds(gain, MOST_ROUNDS, noise, seed, drift=0.2)
    for num in range(2, len(turns) + 1, 2):
        if is_enough(turns[:num], OF_A_CPU):
            return said(turns[:num], OF_A_CPU)
    raise AssertionError


@pytest.mark.parametrize(("gain", "outcome"), [(1.6, "gain"), (0.6, "slower")])
def test_a_true_difference_is_found(gain, outcome):
    turns = rounds(gain, LOOKS[0], noise=0.02, drift=0.2)
    found = ratio(turns, OF_A_CPU)
    assert found.low < gain < found.high
    assert said(turns, OF_A_CPU) == outcome
    assert is_enough(turns, OF_A_CPU)


@pytest.mark.parametrize(
    "noise", [pytest.param(noise, marks=pytest.mark.slow) for noise in (0.01, 0.05, 0.1)] + [0.2]
)
def test_no_gain_is_claimed_where_there_is_none(noise):
    claims = [until_enough(1.0, noise, seed) for seed in range(100)]
    assert claims.count("gain") <= 2
    assert claims.count("slower") <= 2


def test_noise_that_hides_a_gain_is_said():
    turns = rounds(1.05, 4, noise=0.3, seed=3)
    assert said(turns, OF_A_CPU) == "cannot tell"
    assert not is_enough(turns, OF_A_CPU)


@pytest.mark.parametrize("gain", [0.5, 0.9, 1.0, 2.0])
def test_few_rounds_say_nothing(gain):
    found = {
        said(rounds(gain, num_rounds, noise=0.01, seed=seed), OF_A_CPU)
        for num_rounds in range(1, ROUNDS_TO_CLAIM)
        for seed in range(9)
    }
    assert found == {"cannot tell"}


def test_it_ends_whatever_the_noise():
    assert is_enough(rounds(1.05, MOST_ROUNDS, noise=0.3, seed=3), OF_A_CPU)
    assert not is_enough(rounds(1.6, LOOKS[0] - 1, noise=0.01), OF_A_CPU)


def test_windows_that_were_never_calm_name_their_load():
    quiet = rounds(1.6, 3, noise=0.01)
    assert load_of(quiet, OF_A_CPU) == ""
    busy = StepQuality(
        num_steps=9, num_clean=0, num_disturbed=9, stalled_s=0.1, method="low quantile"
    )
    two, one = (
        Cause(kind="processes", message=f"other programs used {cores} of 2 cores", cores=cores)
        for cores in (1.2, 1.1)
    )
    beside = [
        turn._replace(trial=msgspec.structs.replace(turn.trial, quality=busy, causes=(cause,)))
        for turn, cause in zip(quiet, [one, two] * 3, strict=True)
    ]
    assert load_of(beside, OF_A_CPU) == "other programs used 1.2 of 2 cores"
    assert load_of([*beside[:4], *quiet[4:]], OF_A_CPU) == ""
    unnamed = [
        turn._replace(trial=msgspec.structs.replace(turn.trial, causes=())) for turn in beside
    ]
    assert load_of(unnamed, OF_A_CPU) == disturbances.UNNAMED


def test_one_side_alone_says_nothing():
    turns = [turn for turn in rounds(1.6, 4, noise=0.01) if turn.side == AS_IT_IS]
    assert ratio(turns, OF_A_CPU) is None


def test_processes_one_after_the_other_are_compared_by_their_windows():
    turns = [
        Turn(side, number, None, window(rate))
        for number, (side, rate) in enumerate(
            ((AS_IT_IS, 100), (WITH_REMEDY, 300), (AS_IT_IS, 102))
        )
        for _ in range(4)
    ]
    found = ratio(turns, OF_A_CPU)
    assert found.median == pytest.approx(3, rel=0.1)
    assert said(turns, OF_A_CPU) == "gain"
    assert rates_of(turns) == ()


def test_rates_are_told_by_round():
    (first, *_) = rates_of(rounds(2.0, 3, noise=0.0))
    assert first == pytest.approx((100, 200))


def floats(*values):
    return array("f", values).tobytes()


def steps(*losses, begun=True, first=0, gradients=b""):
    return tuple(
        Step(digest=first + at, loss=loss, gradients=gradients, begun=begun)
        for at, loss in enumerate(losses)
    )


def kept(*losses, last=None, **more):
    return Kept(steps=steps(*losses, **more), last_loss=losses[-1] if last is None else last)


def of(usual, remedy, **changes):
    return checked(usual, remedy, **{"begins_late": True, "drops": False, **changes})


def test_the_largest_difference_stands():
    found = of(kept(2.0, 1.0, 1.0), kept(2.0, 1.004, 1.001))
    assert found.loss == pytest.approx(0.004)
    assert (found.num_steps, found.finite) == (3, True)


def test_other_batches_are_not_compared():
    found = of(kept(2.0, 1.0), kept(2.0, 1.0, first=7))
    assert found.reason == OTHER_BATCHES
    assert found.loss is None


def test_it_compares_up_to_the_first_other_batch():
    other = Kept(
        steps=(*steps(1.0), Step(digest=99, loss=5.0, begun=True), *steps(1.0, first=2)),
        last_loss=1.0,
    )
    assert of(kept(1.0, 1.0, 1.0), other).num_steps == 1


def test_steps_before_it_was_in_force_say_nothing_of_it():
    early = kept(1.0, 1.0, begun=False)
    assert of(early, early).reason
    assert of(early, early, begins_late=False).num_steps == 2


@pytest.mark.parametrize("bad", [nan, inf])
def test_a_loss_that_is_no_number_is_seen(bad):
    assert not of(kept(1.0, 1.0), kept(1.0, bad, last=bad)).finite
    assert not of(kept(1.0, 1.0), kept(1.0, 1.0, last=bad)).finite


def test_a_script_whose_own_loss_is_none_is_no_proof_against_the_remedy():
    assert of(kept(nan, nan), kept(nan, nan)).finite


def test_a_scaler_that_leaves_out_every_step_trains_nothing():
    scaled = {"steps": steps(1.0), "last_loss": 1.0, "num_scaled": 60}
    assert not of(kept(1.0), Kept(**scaled, num_skipped=60)).finite
    finds = of(kept(1.0), Kept(**scaled, num_skipped=3))
    assert finds.finite
    assert "3 steps" in finds.note


def test_dropped_activations_are_said():
    assert "at random" in of(kept(1.0), kept(1.0), drops=True).note


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        ((3, 4), (3, 4), 0),
        ((3, 4), (3, 9), 1),
        ((3, 4), (inf, 4), None),
        ((), (1,), None),
        ((1,), (1, 2), None),
    ],
)
def test_gradients_by_the_length_of_their_difference(one, other, apart):
    found = gradients_apart(floats(*one), floats(*other))
    assert found == (None if apart is None else pytest.approx(apart))
