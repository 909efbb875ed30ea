"""Batches with more samples, whatever they look like."""

from collections import UserDict

import pytest
import torch
from batchadvisor.probes.loader.batch_parts import (
    NO_CARRIER,
    OWN_KIND,
    CannotCutError,
    grown_to,
)
from batchadvisor.probes.loader.batch_size_reader import BatchSizeReader
from torch.nn.utils.rnn import pack_sequence

from .test_batch_size_reader import Packed, Pair


class Graph:
    def __init__(self, nodes):
        self.nodes = nodes


def rows(num, *shape):
    return torch.arange(float(num)).reshape(num, *(1 for _ in shape)).expand(num, *shape)


BATCHES = {
    "tensor": lambda n: rows(n, 3),
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


def reader_of(make):
    reader = BatchSizeReader()
    reader.learn(make(8), 8)
    return reader


@pytest.mark.parametrize("num_samples", [2, 12, 100])
@pytest.mark.parametrize("make", BATCHES.values(), ids=BATCHES)
def test_a_batch_of_more_samples(make, num_samples):
    """It is read as that many, and has the shapes of what the loader would have made."""
    reader, batch = reader_of(make), make(12)
    before = str(batch)
    made = grown_to(num_samples, batch, reader.carriers(batch, 12), empty)
    assert reader.read(made) == num_samples
    assert type(made) is type(batch)
    assert str(batch) == before
    if not isinstance(batch, UserDict):
        assert shapes(made) == shapes(make(num_samples))


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


def test_whole_numbers_of_a_grown_batch_come_again():
    batch = {"ids": torch.arange(6).reshape(3, 2), "x": torch.ones(3)}
    reader = BatchSizeReader()
    reader.learn(batch, 3)
    made = grown_to(5, batch, reader.carriers(batch, 3), empty)
    assert made["ids"].tolist() == [[0, 1], [2, 3], [4, 5], [0, 1], [2, 3]]


def test_a_feature_as_long_as_the_batch_is_left_alone():
    """Learnt at another size: only the first axis followed it."""
    reader = BatchSizeReader()
    reader.learn(rows(8, 12), 8)
    batch = rows(12, 12)
    assert grown_to(6, batch, reader.carriers(batch, 12), empty).shape == (6, 12)


def test_nothing_carries_samples():
    with pytest.raises(CannotCutError, match=NO_CARRIER):
        grown_to(3, rows(30, 2), {}, empty)


@pytest.mark.parametrize("batch", [Graph(rows(12, 2)), pack_sequence([rows(3), rows(2)])])
def test_an_object_of_its_own_kind(batch):
    with pytest.raises(CannotCutError, match=OWN_KIND):
        grown_to(6, (rows(12, 3), batch), {(("item", 0),): 0}, empty)
