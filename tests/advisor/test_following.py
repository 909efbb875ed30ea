"""Whether what a step trains on follows the size that was asked for."""

import pytest
from batchadvisor.advisor.measured.following import not_followed, share_of, shows
from batchadvisor.records import Entered, InputSize, Trial


def entered(*inputs, loss=(), num=None, elements=None):
    total = sum(rows * 10 for rows, *_ in inputs) if elements is None else elements
    return Entered(inputs=inputs, loss=loss, num_inputs=num or len(inputs), num_elements=total)


def trial(size, what, **others):
    fields = {"purpose": "search", "outcome": "ok", "arrived_batch_size": size, **others}
    return Trial(ordinal=0, worker=0, batch_size=size, kind="fit", entered=what, **fields)


def vain(pairs):
    return not_followed([trial(size, what) for size, what in pairs])


SAME = entered((32, 10), loss=((32,),))


def test_nothing_grows():
    found = vain([(1, SAME), (8, SAME), (16, SAME)])
    assert (found.smaller, found.larger, found.shape) == (1, 16, (32, 10))
    by_loss = Entered(loss=((64,),))
    assert vain([(8, by_loss), (16, by_loss)]).shape == (64,)


def test_lengths_that_vary_by_themselves():
    """Sequences of any length, always 32 of them: told where the sizes are far enough apart."""
    some, others = entered((32, 41), elements=1312), entered((32, 52), elements=1664)
    assert vain([(8, some), (32, others)]) is not None
    assert vain([(8, entered((32, 20))), (16, entered((32, 60)))]) is None  # cannot tell


@pytest.mark.parametrize(
    ("small", "large"),
    [
        (entered((8, 10)), entered((32, 10))),
        (entered((35, 8)), entered((35, 32))),  # the batch along axis 1
        (entered((8 * 35,)), entered((32 * 35,))),  # tokens of all samples
        (entered((10,), (8, 10)), entered((10,), (32, 10))),  # one of several
        (entered((181, 7), (2, 420)), entered((760, 7), (2, 1611))),  # graphs
        (entered((4, 10), num=2), entered((4, 10), num=8)),  # micro-batches cut in the loop
        (entered(loss=((3,), (8, 3))), entered(loss=((3,), (32, 3)))),
    ],
)
def test_something_grows(small, large):
    assert vain([(8, small), (32, large)]) is None
    assert vain([(8, small), (32, small)]) is not None


def test_what_tells_nothing():
    assert vain([(8, SAME)]) is None
    assert vain([(8, SAME), (9, SAME)]) is None  # too near to each other
    assert vain([(8, None), (32, None)]) is None
    assert vain([(8, SAME), (32, None)]) is None
    tail = trial(1, SAME, purpose="tail")
    failed = trial(64, SAME, outcome="out_of_memory")
    assert not_followed([trial(8, SAME), tail, failed]) is None
    # A data set of 100 rows: larger sizes get no more, which says nothing against smaller ones.
    whole = entered((100, 10))
    assert vain([(8, entered((8, 10))), (128, whole), (512, whole)]) is None


@pytest.mark.parametrize(
    ("written", "asked", "own"),
    [
        (entered((32, 10)), entered((8, 10)), 32),
        (entered((35, 20)), entered((35, 8)), 20),
        (entered((700,)), entered((280,)), 20),
        (entered((8, 10)), entered((8, 10)), 8),
        (entered((32, 10)), entered((32, 10)), None),
        (entered((20, 41)), entered((8, 53)), 20),
        (entered((20, 40), (40, 5)), entered((16, 24), (32, 5)), None),
    ],
)
def test_the_size_as_written(written, asked, own):
    assert share_of(written, asked, 8) == own


def test_a_size_that_is_shown():
    assert shows(entered((35, 8)), 8)
    assert shows(Entered(loss=((8, 3),)), 8)
    assert not shows(SAME, 8)


def test_the_loader_saw_that_another_size_arrived():
    """An item of the data set is a whole batch, and the collate function takes the first alone."""
    own = trial(1, SAME)
    other = trial(4, SAME, outcome="wrong_size", arrived_batch_size=1)
    assert (not_followed([own, other]).smaller, not_followed([own, other]).larger) == (1, 4)
    grown = trial(4, entered((128, 10)), outcome="wrong_size", arrived_batch_size=1)
    assert not_followed([own, grown]) is None
    assert not_followed([own, trial(4, SAME, outcome="exception")]) is None


def of_events(size, elements, what, proof="indices"):
    """A trial whose batches hold so many elements, whatever was drawn for them."""
    each = InputSize(num_batches=3, smallest=0.9 * elements / size, largest=1.1 * elements / size)
    return trial(size, what, inputs=each, size_proof=proof)


def test_what_enters_grows_by_itself():
    """Events of a graph that are read in order: a step sees the more neighbours the later it is."""
    early = entered((541,), (2, 533), (200, 100), loss=((200, 1), (1,)))
    later = entered((1216,), (2, 2090), (200, 100), loss=((200, 1), (1,)))
    found = not_followed([of_events(1, 5400, early), of_events(4, 5400, later)])
    assert (found.smaller, found.larger, found.shape) == (1, 4, (200, 100))
    assert found.what == "a tensor that entered the model"
    assert vain([(1, SAME), (8, SAME)]).what == "the first tensor that entered the model"
    # What a batch holds grows, the loss does, it is not known, or an axis shows the size.
    more = entered((1216,), (2, 2090), (800, 100), loss=((800, 1), (1,)))
    assert not_followed([of_events(1, 5400, early), of_events(4, 21600, later)]) is None
    assert not_followed([of_events(1, 5400, early), of_events(4, 5400, more)]) is None
    assert not_followed([trial(1, early), trial(4, later)]) is None
    shown = [of_events(1, 5400, early, "shape"), of_events(4, 5400, later, "shape")]
    assert not_followed(shown) is None
