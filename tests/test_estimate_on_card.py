"""Which sizes `bench/estimate_on_card.py` tries on a card, and how it judges them."""

import pytest

from .needs import BENCH, bench


@pytest.fixture
def card(monkeypatch):
    monkeypatch.syspath_prepend(BENCH)
    return bench("estimate_on_card")


def tried(card, low, high, largest):
    """The sizes of a card on which `largest` is the largest that runs."""
    sizes = {}
    size = low
    while size is not None:
        sizes[size] = size <= largest
        size = card.next_size(sizes, low, high)
    return sizes


@pytest.mark.parametrize(
    ("largest", "sizes", "inside", "low_ran", "off"),
    [
        (104, [100, 111], True, True, 0.0),
        (110, [100, 111], True, True, 0.0),
        (112, [100, 111, 114], False, True, 105 / 111 - 1),
        (98, [100, 97], False, False, 105 / 99 - 1),
        (94, [100, 97, 94], False, False, 105 / 96 - 1),
    ],
    ids=["within", "the high end", "above", "below", "far below"],
)
def test_a_range_of_100_to_110(card, largest, sizes, inside, low_ran, off):
    became = tried(card, 100, 110, largest)
    assert list(became) == sizes
    told = [{"batch_size": size, "ran": ran} for size, ran in became.items()]
    judged = card.judged({"estimate": {"low": 100, "high": 110}, "card": told})
    assert (judged["inside"], judged["low_ran"]) == (inside, low_ran)
    assert judged["off"] == pytest.approx(off)


def test_nothing_runs(card):
    assert list(tried(card, 2, 3, 0)) == [2, 1]
    told = [{"batch_size": size, "ran": False} for size in (2, 1)]
    assert card.judged({"estimate": {"low": 2, "high": 3}, "card": told}) is None
