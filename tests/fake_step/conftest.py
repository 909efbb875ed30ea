"""A mode of fake tensors that counts what it is asked."""

import pytest
from torch._subclasses.fake_tensor import FakeTensorMode


class Counted(FakeTensorMode):
    """Knows how many operations it was asked for."""

    asked = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.asked += 1
        return super().__torch_dispatch__(func, types, args, kwargs or {})


@pytest.fixture
def mode():
    with Counted() as fakes:
        yield fakes
