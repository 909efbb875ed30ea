"""How many samples a batch holds, whatever the batch looks like."""

from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
from batchadvisor.probes.loader.batch_size_reader import BatchSizeReader, falls_short


class Pair(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor


@dataclass
class Packed:
    values: torch.Tensor
    labels: torch.Tensor


def images(num, features=5):
    return torch.zeros(num, features), torch.zeros(num)


def learnt(*batches_and_sizes):
    """A reader that learnt from these batches, each with its size."""
    reader = BatchSizeReader()
    for batch, size in batches_and_sizes:
        reader.learn(batch, size)
    return reader


SHAPES = {
    "pair": images,
    "dict": lambda n: {"x": torch.zeros(n, 3), "y": torch.zeros(n)},
    "nested": lambda n: {"inputs": {"ids": torch.zeros(n, 7)}, "meta": [torch.zeros(n)]},
    "named tuple": lambda n: Pair(torch.zeros(n, 4), torch.zeros(n)),
    "object": lambda n: Packed(torch.zeros(n, 4), torch.zeros(n)),
    "strings": lambda n: ["a text"] * n,
    "strings and labels": lambda n: (["a text"] * n, torch.zeros(n)),
    "time first": lambda n: torch.zeros(11, n, 3),
    "numbers first": lambda n: {"epoch": 3, "name": "train", "x": torch.zeros(n, 3)},
    "scalar first": lambda n: (torch.tensor(1.5), torch.zeros(n, 3)),
}


def scene(num):
    """An image and what is on it: nothing of it has the length of a batch."""
    return torch.zeros(3, 20 + num, 24), {"boxes": torch.zeros(num, 4), "labels": torch.zeros(num)}


class TestListsOfSamples:
    @pytest.mark.parametrize("make", [list, lambda samples: tuple(zip(*samples, strict=True))])
    def test_what_is_on_an_image_is_no_batch(self, make):
        """Two boxes on each image of the first two, and other numbers on others.

        A batch of another size tells that they are no batch of two lists.
        """
        batches = [[scene(num) for num in nums] for nums in ((2, 2), (1, 3), (4, 2, 2))]
        reader = learnt(*((make(batch), len(batch)) for batch in batches))
        for size in (1, 2, 3, 8, 100):
            assert reader.read(make([scene(2)] * size)) == size

    def test_as_many_inputs_as_samples(self):
        def make(num):
            return [[torch.zeros(num, 3), torch.zeros(num, 5)], torch.zeros(num)]

        reader = learnt((make(2), 2))
        assert [reader.read(make(num)) for num in (3, 1)] == [3, 1]


def detections(num):
    """Images of one size and targets with a few boxes, as datasets of detection give them."""
    return [
        (
            torch.zeros(3, 16, 16),
            {"boxes": torch.zeros(1 + place % 5, 4), "labels": torch.zeros(1 + place % 5)},
        )
        for place in range(num)
    ]


LISTS = {
    "images and targets": lambda n: tuple(zip(*detections(n), strict=True)),
    "two lists": lambda n: [list(detection) for detection in zip(*detections(n), strict=True)],
    "as they came": detections,
    "images and labels": lambda n: tuple(zip(*[(x, 3) for x, _ in detections(n)], strict=True)),
    "image and label": lambda n: [(x, 3) for x, _ in detections(n)],
    "images and a tensor": lambda n: ([x for x, _ in detections(n)], torch.zeros(n)),
    "image and mask": lambda n: tuple(zip(*[(x, x) for x, _ in detections(n)], strict=True)),
    "dict of lists": lambda n: {"x": [x for x, _ in detections(n)], "id": list(range(n))},
    "targets": lambda n: [y for _, y in detections(n)],
    # A tensor for each part of the input, with all samples in it.
    "crops": lambda n: [torch.zeros(n, 3, 8, 8) for _ in range(16)],
    "crops and labels": lambda n: ([torch.zeros(n, 3, 8, 8) for _ in range(16)], torch.zeros(n)),
    "two dicts": lambda n: [{"ids": torch.zeros(n, 7)}, {"labels": torch.zeros(n)}],
}


class TestCounted:
    """Axes of an image and of its boxes are as long as a batch by accident."""

    @pytest.mark.parametrize("size", [3, 4, 16])
    @pytest.mark.parametrize("make", LISTS.values(), ids=LISTS.keys())
    def test_one_size_that_is_known(self, make, size):
        reader = learnt((make(size), size))
        for num in (size, size, 1, size - 1, 40):
            assert reader.read(make(num)) == num

    @pytest.mark.parametrize("make", LISTS.values(), ids=LISTS.keys())
    def test_no_size_that_is_known(self, make):
        reader = BatchSizeReader()
        for num in (16, 1, 7, 100):
            assert reader.read(make(num)) == num

    @pytest.mark.parametrize("kind", [list, tuple])
    def test_images_alone_may_be_anything(self, kind):
        def make(num):
            return kind(x for x, _ in detections(num))

        assert BatchSizeReader().read(make(16)) is None
        reader = learnt((make(16), 16))
        assert [reader.read(make(num)) for num in (16, 4, 3, 1)] == [16, 4, 3, 1]


class TestLearnt:
    @pytest.mark.parametrize("make", SHAPES.values(), ids=SHAPES.keys())
    def test_every_size_is_read(self, make):
        reader = learnt((make(16), 16))
        assert [reader.read(make(size)) for size in (1, 2, 16, 33)] == [1, 2, 16, 33]

    def test_a_feature_axis_as_long_as_the_size_asked_for(self):
        """The batch was learnt at 16; 5 features do not pass for a batch of 5."""
        reader = learnt((images(16, features=5), 16))
        assert [reader.read(images(size, features=5)) for size in (7, 5)] == [7, 5]

    def test_a_feature_axis_as_long_as_the_native_size(self):
        """Both axes fit at first; a short last batch, or the convention, tells them apart."""
        assert learnt((images(5, features=5), 5)).read(images(9, features=5)) == 9
        time_first = learnt((torch.zeros(5, 5, 2), 5), (torch.zeros(5, 3, 2), 3))
        assert time_first.read(torch.zeros(5, 8, 2)) == 8
        left_out = learnt((torch.zeros(16, 16, 2), 16), (torch.zeros(16, 63, 2), 64))
        assert left_out.read(torch.zeros(16, 127, 2)) == 127

    def test_a_contradiction_keeps_what_was_known(self):
        assert learnt((images(16), 16), (images(16), 99)).read(images(4)) == 4

    def test_samples_left_out_of_the_first_batch(self):
        reader = learnt((images(15, features=12), 16))
        assert reader.undecided
        assert reader.read(images(15, features=12)) is None
        reader.learn(images(16, features=12), 16)
        assert not reader.undecided
        assert [reader.read(images(size, features=12)) for size in (63, 12, 1)] == [63, 12, 1]

    def test_an_axis_of_a_feature_that_could_be_a_batch_with_samples_left_out(self):
        """It is as long as one of the sizes asked for, and as long before."""
        reader = learnt((torch.zeros(313, 12), 16), (torch.zeros(290, 12), 12))
        assert reader.read(torch.zeros(290, 12)) is None
        reader.learn(torch.zeros(1301, 12), 64)
        assert not reader.undecided

    @pytest.mark.parametrize(
        ("size", "drawn", "fits"),
        [(63, 64, True), (33, 64, True), (32, 64, False), (64, 64, False), (65, 64, False)],
    )
    def test_falls_short(self, size, drawn, fits):
        assert falls_short(size, drawn) is fits

    def test_packed_data_has_no_size(self):
        """Graphs and packed text: the first axis counts nodes or tokens."""
        reader = learnt(({"tokens": torch.zeros(313), "ends": torch.zeros(4, 2)}, 16))
        assert reader.read({"tokens": torch.zeros(290), "ends": torch.zeros(4, 2)}) is None

    def test_a_leaf_that_is_missing(self):
        reader = learnt(({"x": torch.zeros(16, 3)}, 16))
        assert reader.read({}) is None
        assert reader.read(torch.tensor(3.0)) is None


class TestUnlearnt:
    @pytest.mark.parametrize("make", [SHAPES["pair"], SHAPES["dict"], SHAPES["strings"]])
    def test_the_first_axis_counts(self, make):
        assert BatchSizeReader().read(make(6)) == 6

    @pytest.mark.parametrize("batch", [None, 3, "text", b"bytes", [], {}, torch.tensor(1.0)])
    def test_nothing_to_read(self, batch):
        assert BatchSizeReader().read(batch) is None

    def test_a_batch_that_contains_itself(self):
        batch = {"x": torch.zeros(4, 2)}
        batch["self"] = batch
        assert BatchSizeReader().read(batch) == 4

    def test_very_many_leaves(self):
        assert BatchSizeReader().read([torch.zeros(3)] * 10_000) == 3

    def test_a_strange_shape(self):
        class Odd:
            shape = 5

        assert BatchSizeReader().read([Odd(), torch.zeros(3)]) == 3
