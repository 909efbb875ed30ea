"""How long the inputs of a batch are."""

import torch
from batchadvisor.probes.loader.lengths import EQUAL_BATCHES, MOST_PARTS, Lengths, elements


def text(*shape):
    return {"ids": torch.zeros(*shape), "label": torch.zeros(shape[0])}


def test_the_spread_of_a_trial():
    lengths = Lengths()
    for length in (9, 99, 49):
        lengths.note(text(4, length), 4)
    spread = lengths.take()
    assert (spread.num_batches, spread.smallest, spread.largest) == (3, 10.0, 100.0)
    lengths.begin()
    lengths.note(text(2, 19), 2)
    assert (lengths.take().smallest, lengths.take().largest) == (20.0, 20.0)


def test_one_length_is_no_spread():
    lengths = Lengths()
    for size in (4, 8, 2):
        lengths.note(text(size, 9), size)
    assert lengths.take() is None


def test_where_nothing_varies_only_the_first_batch_of_a_trial_is_measured():
    lengths = Lengths()
    for _ in range(EQUAL_BATCHES + 1):
        lengths.note(text(4, 9), 4)
    lengths.note(None, 4)  # not looked at any more
    assert lengths.take() is None
    lengths.begin()
    for _ in range(2):
        lengths.note(text(8, 9), 8)
    assert lengths.take(always=True).num_batches == 1


def test_batches_without_a_size_or_tensors():
    lengths = Lengths()
    lengths.note(text(4, 9), None)
    lengths.note(("only", "words"), 2)
    assert lengths.take() is None


def test_elements():
    assert elements(text(4, 9)) == 40
    assert elements([torch.zeros(3, 5), [1, 2, 3]]) == 18
    assert elements("words") == 0


def test_batches_of_many_parts():
    """A list of images, or an object that keeps the samples it was made of."""
    lengths = Lengths()
    for size in (16, 64, 200):
        lengths.note([{"image": torch.zeros(3, 5), "boxes": [1, 2]} for _ in range(size)], size)
    assert lengths.take() is None
    lengths.note([torch.zeros(3)] * (MOST_PARTS + 1), MOST_PARTS + 1)  # too many: not known
    assert lengths.take() is None
    assert elements([torch.zeros(3)] * (MOST_PARTS + 1)) == 0
