"""How a loss reduces a batch, told from the gradients of the batch and of its halves."""

import numpy as np
import pytest
from batchadvisor.probes.windows.loss_kind import loss_of
from hypothesis import given
from hypothesis import strategies as st

SAME = (0.0, 0.0, 0.0)
MIXED = (0.0, 0.4, 0.4)
SIZE = 200


def vectors(seed, num=3):
    return np.random.default_rng(seed).normal(size=(num, SIZE))


def told(whole, again, first, second, outputs=SAME):
    rows = np.stack([whole, again, first, second])
    return loss_of((rows @ rows.T).tolist(), 58, outputs)


@given(st.integers(0, 10**6), st.floats(0.1, 0.9), st.floats(1e-6, 1e6))
def test_a_mean_whatever_the_weights_and_the_scale(seed, share, scale):
    """Classes with weights, tokens that do not count: the halves have unequal parts."""
    first, second, _ = scale * vectors(seed)
    whole = share * first + (1 - share) * second
    check = told(whole, whole, first, second)
    assert check.apart < 1e-6
    assert (check.reduction, check.num_samples, check.reason) == ("mean", 58, "")
    assert check.ratio == pytest.approx(1)


@given(st.integers(0, 10**6), st.floats(1e-6, 1e6))
def test_a_sum(seed, scale):
    first, second, _ = scale * vectors(seed)
    check = told(first + second, first + second, first, second)
    assert check.reduction == "sum"
    assert check.ratio == pytest.approx(2)
    assert check.noise == pytest.approx(0, abs=1e-6)


@given(st.integers(0, 10**6), st.sampled_from([0.5, 1.0]), st.floats(0.0, 0.15))
def test_noise_does_not_make_a_loss_contrastive(seed, part, level):
    """Each gradient is drawn anew around what it would be; halves have twice the variance."""
    first, second, base = vectors(seed)
    first, second = first + 2 * base, second + 2 * base
    whole = part * (first + second)
    draw = np.random.default_rng(seed + 1)
    scale = level * np.linalg.norm(whole) / SIZE**0.5 / 2**0.5

    def seen(gradient, times):
        return gradient + times * scale * draw.normal(size=SIZE)

    half = 2**0.5 if part == 0.5 else 0.5**0.5
    check = told(seen(whole, 1), seen(whole, 1), seen(first, half), seen(second, half))
    assert check.reduction in ({0.5: "mean", 1.0: "sum"}[part], None)
    if level < 0.1:
        assert check.reduction is not None


@given(st.integers(0, 10**6), st.floats(0.2, 3.0))
def test_what_the_halves_do_not_make(seed, apart):
    first, second, new = vectors(seed)
    whole = (first + second) / 2 + apart * new
    check = told(whole, whole, first, second)
    assert check.reduction == "contrastive"
    assert check.apart > 0.1


def test_a_model_that_mixes_samples_is_not_a_loss_that_does():
    first, second, new = vectors(0)
    whole = (first + second) / 2 + new
    check = told(whole, whole, first, second, MIXED)
    assert check.reduction is None
    assert "so do the outputs of the model" in check.reason


def test_without_outputs_no_loss_is_blamed():
    first, second, new = vectors(0)
    whole = (first + second) / 2 + new
    check = told(whole, whole, first, second, None)
    assert check.reduction is None
    assert "no output of the model could be compared" in check.reason
    assert told((first + second) / 2, (first + second) / 2, first, second, None).reduction == "mean"


def test_too_noisy():
    first, second, noise = vectors(1)
    whole = (first + second) / 2
    check = told(whole, whole + noise, first, second)
    assert check.reduction is None
    assert check.reason.startswith("two gradients of the same batch differ by")
    assert check.noise > 0.3


def test_neither():
    first, second, _ = vectors(2)
    check = told(0.75 * (first + second), 0.75 * (first + second), first, second)
    assert (check.reduction, check.ratio) == (None, pytest.approx(1.5))
    assert check.reason == "the gradient of a batch is 1.50 times a mean of those of its halves"


def test_a_little_apart():
    first, second, new = vectors(3)
    whole = (first + second) / 2 + 0.05 * new
    check = told(whole, whole, first, second)
    assert check.reduction is None
    assert "may be rounding or noise" in check.reason


def test_halves_that_point_the_same_way():
    """Such as those of a single parameter."""
    (gradient,) = vectors(4, 1)
    assert told(gradient, gradient, 0.5 * gradient, 1.5 * gradient).reduction == "mean"
    assert told(2 * gradient, 2 * gradient, gradient, gradient).reduction == "sum"


@pytest.mark.parametrize(
    ("value", "reason"), [(np.nan, "not finite"), (np.inf, "not finite"), (0.0, "is zero")]
)
def test_no_gradient_to_speak_of(value, reason):
    first, second, _ = vectors(5)
    with np.errstate(invalid="ignore"):
        check = told(np.full(SIZE, value), first, first, second)
    assert check.reduction is None
    assert reason in check.reason
