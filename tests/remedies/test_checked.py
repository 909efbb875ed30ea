"""Losses and gradients of the same batches in two processes."""

from array import array
from math import inf, nan

import pytest
from batchadvisor.features.remedies.checked import OTHER_BATCHES, checked, gradients_apart
from batchadvisor.features.remedies.settings import Kept, Step


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
