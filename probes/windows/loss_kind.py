"""How a loss reduces a batch, told from four gradients: of a batch, of it again, of its halves.

Under a mean over samples the gradient of a batch is the mean of those of its two halves, under a
sum their sum. A mean with weights (of classes, of tokens that count) is a mean with unequal parts.
A loss that compares the samples of a batch with each other leaves a part that no combination of
the halves makes. A batch put behind itself would not show that: for InfoNCE over a batch x x the
gradient is the one over x, as every negative only counts twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, sqrt

from msgspec.structs import replace

from ...records import Loss, LossCheck

MAX_NOISE = 0.3
"""Share by which two gradients of one batch may differ; above it nothing can be told."""
EXACT = 0.05
"""Share left over by the halves that counts as rounding (bfloat16 keeps 3 digits)."""
APART = 0.1
"""Share left over that no rounding explains."""
RATIO = 0.15
"""A mean has the ratio 1 and a sum 2, to so much."""
MIXED = 0.02
"""Share by which a model's outputs for a half may differ from those in the whole batch."""

WHOLE, AGAIN, FIRST, SECOND = range(4)
"""Order of the gradients in a matrix of their inner products."""
PLAN = (WHOLE, FIRST, SECOND, AGAIN)
REPEATS = 2
"""Steps on each; the last counts. A script that fetches a batch ahead is one step behind."""
NO_TIME = "no time was left for it"


def loss_of(
    products: Sequence[Sequence[float]], num_samples: int, outputs: Sequence[float] | None
) -> LossCheck:
    """What these gradients say.

    Args:
        products: inner products of the gradients of the batch, of it again, and of its halves.
        num_samples: of the batch.
        outputs: share by which the model's outputs for the batch differ from those for it again,
            and from those for its halves; `None` where none could be compared.
    """
    check = LossCheck(num_samples=num_samples)
    if not all(isfinite(value) for row in products for value in row):
        return replace(check, reason="a gradient is not finite")
    if min(products[part][part] for part in range(4)) <= 0:
        return replace(check, reason="a gradient is zero")
    size = sqrt(products[WHOLE][WHOLE])
    noise = _length(products, (1.0, -1.0, 0.0, 0.0)) / size
    if noise > MAX_NOISE:
        check = replace(check, noise=noise)
        return replace(
            check,
            reason=f"two gradients of the same batch differ by {noise:.0%}, as where a step draws "
            "random numbers",
        )
    parts = _parts(products)
    ratio = sum(parts)
    apart = _length(products, (1.0, 0.0, -parts[0], -parts[1])) / size
    check = replace(check, noise=noise, ratio=ratio, apart=apart)
    if apart <= EXACT + 2 * noise:
        return _by_ratio(check, ratio, noise)
    if apart <= APART + 3 * noise:
        return replace(check, reason=f"{_share(apart)}, which may be rounding or noise")
    return _by_outputs(check, _share(apart), outputs)


def _by_ratio(check: LossCheck, ratio: float, noise: float) -> LossCheck:
    # Noise in the halves, with twice the variance, makes their parts look smaller.
    low = 1 - RATIO - 2 * noise**2
    kinds: tuple[tuple[float, Loss], ...] = ((1.0, "mean"), (2.0, "sum"))
    for wanted, kind in kinds:
        if low <= ratio / wanted <= 1 + RATIO:
            return replace(check, reduction=kind)
    return replace(
        check, reason=f"the gradient of a batch is {ratio:.2f} times a mean of those of its halves"
    )


def _by_outputs(check: LossCheck, left: str, outputs: Sequence[float] | None) -> LossCheck:
    """The loss is blamed only where the model treats each sample alone."""
    if outputs is None:
        return replace(check, reason=f"{left}, and no output of the model could be compared")
    again, *halves = outputs
    if max(halves) > MIXED + 3 * again:
        return replace(
            check, reason=f"{left}, and so do the outputs of the model: it mixes samples"
        )
    return replace(check, reduction="contrastive")


def _share(apart: float) -> str:
    return f"the gradient of a batch differs by {apart:.0%} from what its halves make"


def _length(products: Sequence[Sequence[float]], parts: Sequence[float]) -> float:
    """Length of a combination of the gradients."""
    square = sum(
        left * right * products[row][column]
        for row, left in enumerate(parts)
        for column, right in enumerate(parts)
    )
    return sqrt(max(0.0, square))


def _parts(products: Sequence[Sequence[float]]) -> tuple[float, float]:
    """What of the halves' gradients the batch's is made of, as far as it is.

    Least squares with two unknowns. Halves that point the same way leave one of them open: then
    equal parts are taken.
    """
    first, second = products[FIRST][FIRST], products[SECOND][SECOND]
    both = products[FIRST][SECOND]
    with_first, with_second = products[WHOLE][FIRST], products[WHOLE][SECOND]
    determinant = first * second - both * both
    if determinant > 1e-9 * first * second:
        return (
            (with_first * second - with_second * both) / determinant,
            (with_second * first - with_first * both) / determinant,
        )
    length = first + second + 2 * both
    equal = (with_first + with_second) / length if length > 0 else 0.0
    return equal, equal
