"""Batches with more samples, or with longer ones, whatever they look like."""

from collections import UserDict

import pytest
import torch
from batchadvisor.probes.loader.batch_lengths import NO_BATCH_LENGTH, lengthened
from batchadvisor.probes.loader.batch_parts import (
    NO_CARRIER,
    OWN_KIND,
    CannotCutError,
    flat_carriers,
    grown_to,
    is_whole,
    scaled_to,
)
from batchadvisor.probes.loader.batch_size_reader import BatchSizeReader
from torch.nested import nested_tensor
from torch.nn.utils.rnn import pack_sequence

from .test_batch_size_reader import Packed, Pair


class Graph:
    def __init__(self, nodes):
        self.nodes = nodes


def rows(num, *shape):
    return torch.arange(float(num)).reshape(num, *(1 for _ in shape)).expand(num, *shape)


BATCHES = {
    "pair": lambda n: [rows(n, 3), rows(n)],
    "tuple": lambda n: (rows(n, 3), rows(n)),
    "named tuple": lambda n: Pair(rows(n, 4), rows(n)),
    "dict": lambda n: {"x": rows(n, 3), "deep": {"ids": rows(n, 7)}, "epoch": 3, "name": "train"},
    "encoding": lambda n: UserDict(input_ids=rows(n, 9)),
    "dataclass": lambda n: Packed(rows(n, 4), rows(n)),
    "time first": lambda n: torch.stack([rows(n, 2)] * 11),
    "texts": lambda n: ([str(index) for index in range(n)], rows(n)),
    "with a mask": lambda n: (rows(n, 3), torch.ones(5, 5)),
}


def empty(like, shape):
    return torch.empty(shape, dtype=like.dtype)


def shapes(value):
    if isinstance(value, torch.Tensor):
        return value.dtype, value.shape
    if isinstance(value, dict):
        return {key: shapes(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [shapes(part) for part in value]
    return shapes(vars(value)) if isinstance(value, Packed) else type(value)


def grown(num_samples, batch, own, learnt=None):
    """The batch with so many samples, and the reader that knows its axes."""
    reader = BatchSizeReader()
    reader.learn(*(learnt or (batch, own)))
    return grown_to(num_samples, batch, reader.carriers(batch, own), empty), reader


@pytest.mark.parametrize("num_samples", [2, 100])
@pytest.mark.parametrize("make", BATCHES.values(), ids=BATCHES)
def test_a_batch_of_more_samples(make, num_samples):
    """It is read as that many, and has the shapes of what the loader would have made."""
    batch = make(12)
    before = str(batch)
    made, reader = grown(num_samples, batch, 12, learnt=(make(8), 8))
    assert reader.read(made) == num_samples
    assert type(made) is type(batch)
    assert str(batch) == before
    if not isinstance(batch, UserDict):
        assert shapes(made) == shapes(make(num_samples))


def test_whole_numbers_of_a_grown_batch_come_again():
    made, _ = grown(5, {"ids": torch.arange(6).reshape(3, 2), "x": torch.ones(3)}, 3)
    assert made["ids"].tolist() == [[0, 1], [2, 3], [4, 5], [0, 1], [2, 3]]


def flat(lengths):
    """Nodes of graphs, edges, the graph of each node, a mask of the longest, labels, names."""
    num, nodes, longest = len(lengths), sum(lengths), max(lengths)
    graphs = torch.repeat_interleave(torch.arange(num), torch.tensor(lengths))
    edges = torch.arange(2 * nodes).reshape(2, nodes) % nodes
    padded = torch.ones(num, longest)
    mask, labels, names = torch.ones(longest, longest), torch.arange(num) % 3, ["a"] * num
    return [torch.ones(nodes, 5), edges, graphs, padded, mask, labels, names]


def test_parts_that_hold_what_all_samples_have_grow_with_them():
    first, other = flat([4, 7, 6, 9]), flat([5, 3, 8, 7])
    reader = BatchSizeReader()
    reader.learn(first, 4)
    carriers = reader.carriers(first, 4)
    assert not is_whole(first, carriers)
    beside = flat_carriers(first, other, carriers)
    assert list(beside.values()) == [0, 1, 0]  # not the mask, which goes with the longest
    for num_samples in (2, 4, 16):
        nodes, edges, graphs, padded, mask, labels, names = scaled_to(
            num_samples, 4, first, carriers | beside, empty
        )
        num_nodes = 26 * num_samples // 4
        assert nodes.shape == (num_nodes, 5)
        assert edges.shape == (2, num_nodes)
        assert graphs.unique().tolist() == list(range(num_samples))
        assert padded.shape == (num_samples, 9)
        assert mask.shape == (9, 9)
        assert len(labels) == len(names) == num_samples


def test_a_feature_as_long_as_the_batch_is_left_alone():
    """Learnt at another size: only the first axis followed it."""
    made, _ = grown(6, rows(12, 12), 12, learnt=(rows(8, 12), 8))
    assert made.shape == (6, 12)


def test_every_axis_of_the_length_changes():
    batch = {
        "ids": torch.arange(6).reshape(2, 3),
        "mask": torch.ones(2, 1, 3, 3, dtype=torch.bool),
        "states": torch.ones(2, 3, 7),
        "label": torch.tensor([0, 1]),
    }
    carriers = {(("item", key),): 0 for key in batch}
    longer = lengthened(batch, carriers, 5, empty)
    assert longer["ids"].tolist() == [[0, 1, 2, 0, 1], [3, 4, 5, 3, 4]]
    assert longer["mask"].shape == (2, 1, 5, 5)
    assert longer["states"].shape == (2, 5, 7)
    assert longer["label"].tolist() == [0, 1]
    assert lengthened(batch, carriers, 2, empty)["ids"].tolist() == [[0, 1], [3, 4]]


def test_samples_are_no_length():
    """Three samples of three tokens: the axis of the samples stays."""
    tokens = torch.zeros(3, 3, dtype=torch.long)
    assert lengthened(tokens, {(): 0}, 9, empty).shape == (3, 9)


def test_images_have_no_length():
    with pytest.raises(CannotCutError, match=NO_BATCH_LENGTH):
        lengthened(torch.zeros(4, 3, 8, 8), {(): 0}, 9, empty)


@pytest.mark.parametrize(
    ("other", "carriers", "reason"),
    [
        (lambda: rows(12, 2), {}, NO_CARRIER),
        (lambda: Graph(rows(12, 2)), {(("item", 0),): 0}, OWN_KIND),
        (lambda: pack_sequence([rows(3), rows(2)]), {(("item", 0),): 0}, OWN_KIND),
        (
            lambda: nested_tensor([rows(3), rows(2)], layout=torch.jagged),
            {(("item", 0),): 0},
            OWN_KIND,
        ),
    ],
    ids=["nothing carries samples", "graph", "packed sequence", "nested tensor"],
)
def test_what_cannot_be_cut_into_samples(other, carriers, reason):
    with pytest.raises(CannotCutError, match=reason):
        grown_to(6, (rows(12, 3), other()), carriers, empty)
