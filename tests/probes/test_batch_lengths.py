"""Batches of sequences with another length."""

import pytest
import torch
from batchadvisor.probes.loader.batch_lengths import NO_BATCH_LENGTH, lengthened
from batchadvisor.probes.loader.batch_parts import CannotCutError

CARRIERS = {(("item", key),): 0 for key in ("ids", "mask", "states", "label")}


def batch():
    return {
        "ids": torch.arange(6).reshape(2, 3),
        "mask": torch.ones(2, 1, 3, 3, dtype=torch.bool),
        "states": torch.ones(2, 3, 7),
        "label": torch.tensor([0, 1]),
    }


def empty(like, shape):
    return like.new_empty(shape)


def test_every_axis_of_the_length_changes():
    longer = lengthened(batch(), CARRIERS, 5, empty)
    assert longer["ids"].tolist() == [[0, 1, 2, 0, 1], [3, 4, 5, 3, 4]]
    assert longer["mask"].shape == (2, 1, 5, 5)
    assert longer["states"].shape == (2, 5, 7)
    assert longer["label"].tolist() == [0, 1]
    assert lengthened(batch(), CARRIERS, 2, empty)["ids"].tolist() == [[0, 1], [3, 4]]


def test_samples_are_no_length():
    """Three samples of three tokens: the axis of the samples stays."""
    carriers = {(): 0}
    assert lengthened(torch.zeros(3, 3, dtype=torch.long), carriers, 9, empty).shape == (3, 9)


def test_images_have_no_length():
    with pytest.raises(CannotCutError, match=NO_BATCH_LENGTH):
        lengthened(torch.zeros(4, 3, 8, 8), {(): 0}, 9, empty)
