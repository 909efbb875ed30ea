"""Gradients of tables that hold the rows of a batch alone: how many rows each operation leaves."""

import pytest
import torch
from batchadvisor.probes.fake_step.unknown_shapes import bounded
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

OPERATIONS = {
    "accumulated": lambda gradient: gradient.add_(gradient.clone()),
    "subtracted": lambda gradient: gradient.sub_(gradient.clone()),
    "sum": lambda gradient: gradient + gradient,
    "difference": lambda gradient: gradient - gradient,
    "scaled": lambda gradient: gradient * 2.0,
    "scaled by a tensor": lambda gradient: gradient * torch.tensor(2.0),
    "scaled in place": lambda gradient: gradient.mul_(2.0),
    "divided": lambda gradient: gradient / 2,
    "negative": lambda gradient: -gradient,
    "half": lambda gradient: gradient.to(torch.bfloat16),
    "emptied": lambda gradient: gradient.zero_(),
    "added to a dense one": lambda gradient: torch.ones(100, 16) + gradient,
}


class Bounded(TorchDispatchMode):
    """Results as a fake step makes them."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        return (bounded(name, args) or func)(*args, **(kwargs or {}))


def gradient_of_three_rows():
    table = nn.Embedding(100, 16, sparse=True)
    table(torch.tensor([1, 2, 5])).sum().backward()
    return table.weight.grad


def rows_and_type(tensor):
    is_sparse = tensor.layout is torch.sparse_coo
    return tensor._values().shape if is_sparse else tensor.shape, tensor.dtype


@pytest.mark.parametrize("name", OPERATIONS)
def test_rows_are_as_many_as_on_real_tensors(name):
    operation = OPERATIONS[name]
    real = operation(gradient_of_three_rows())
    with FakeTensorMode(), Bounded():
        fake = operation(gradient_of_three_rows())
    shape, dtype = rows_and_type(real)
    if name in ("accumulated", "subtracted", "sum", "difference"):
        shape = (6, 16)  # a GPU appends; a CPU merges what has its rows in order
    assert rows_and_type(fake) == (shape, dtype)


def test_batches_that_accumulate_add_their_rows():
    with FakeTensorMode(), Bounded():
        table = nn.Embedding(100, 16, sparse=True)
        for _ in range(3):
            table(torch.tensor([1, 2, 5])).sum().backward()
        assert table.weight.grad._values().shape == (9, 16)
