"""Which devices are twins, and what the difference of two says."""

import pytest
from batchadvisor.advisor.explain.distribution_findings import chunks
from batchadvisor.advisor.split.twins import compare, representatives, twin_of
from batchadvisor.records import Spread
from batchadvisor.spread import ratio_of


def spread(median, half):
    return Spread(
        median=median, low=median - half, high=median + half, num_samples=9, confidence=0.9
    )


def test_the_first_of_each_model_is_probed():
    models = ["A100", "T4", "A100"]
    assert representatives(models) == (0, 1)
    assert [twin_of(models, place) for place in range(3)] == [None, None, 0]


@pytest.mark.parametrize(
    ("speed", "other", "expected"),
    [
        (spread(40, 2), spread(100, 2), "weak"),
        (spread(150, 2), spread(100, 2), "strong"),
        (spread(100, 1), spread(101, 1), "equal"),
        (spread(90, 20), spread(100, 20), "cannot tell"),
        (spread(97, 0.1), spread(100, 0.1), "equal"),  # slower, but not so that it matters
    ],
)
def test_what_a_ratio_says(speed, other, expected):
    ratio = ratio_of(speed, other)
    assert ratio.low <= ratio.median <= ratio.high
    assert compare(ratio) == expected


@pytest.mark.parametrize("batch", range(1, 70))
@pytest.mark.parametrize("num", [2, 3, 4, 8])
def test_chunks_are_those_of_torch(batch, num):
    import torch

    assert chunks(batch, num) == tuple(len(chunk) for chunk in torch.arange(batch).chunk(num))
