"""Looking through the objects of a process ends where a training would wait too long."""

import itertools
from functools import partial

import pytest
import torch
from batchadvisor.probes.devices import live_tensors
from batchadvisor.probes.devices.live_objects import Bound, LookTooLongError, objects_of
from batchadvisor.probes.fake_step import live_tensors as held_tensors
from batchadvisor.probes.worker.kept_steps import KeptSteps
from torch import nn


class Kept:
    """Something that a look may find."""


class Liar:
    """Says that it is another; asking it would run its code."""

    @property
    def __class__(self):
        raise AssertionError


def test_objects_are_found_by_their_types_alone():
    kept, liar = [Kept(), Kept()], Liar()
    found, others = objects_of(Kept, list, bound=Bound())
    assert len(found) == 2
    assert any(each is kept for each in others)
    assert type(liar) is Liar


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"max_objects": 10}, "more than 10 objects"),
        ({"max_blocks": 1000}, "more than 1,000 blocks of memory"),
    ],
)
def test_too_many_are_not_looked_through(limits, words):
    with pytest.raises(LookTooLongError, match=words):
        objects_of(Kept, bound=Bound(**limits))


def test_time_ends_a_look():
    clock = itertools.count().__next__
    with pytest.raises(LookTooLongError, match=r"takes more than 0\.5 s"):
        objects_of(Kept, bound=Bound(clock=lambda: float(clock()), max_s=0.5))


def test_when_time_is_over_what_holds_a_tensor_is_not_searched_for(monkeypatch):
    """What lives more is counted all the same."""
    kept = []
    look = live_tensors.LiveTensors()
    kept += [torch.ones(3) for _ in range(20)]
    monkeypatch.setattr(Bound, "is_over", property(lambda _: True))
    monkeypatch.setattr(Bound, "check", lambda _: None)
    seen = look.since(20)
    assert seen.more_tensors == 20
    assert (seen.holder, seen.holder_kind) == ("", "")


def test_what_the_first_step_makes_is_not_kept_by_each():
    """The loss of the last step lives on with its graph, be that as deep as it may."""
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(100)))
    kept = KeptSteps()
    kept.begin()
    for _ in range(3 + 20):
        loss = model(torch.ones(1, 2)).sum()
        loss.backward()
        kept.stepped(1)
    look = kept.look()
    assert look is not None
    assert loss.grad_fn is not None
    assert (look.num_steps, look.more_nodes, look.more_tensors) == (20, 0, 0)


class TestWithoutALook:
    @pytest.fixture(autouse=True)
    def few(self, monkeypatch):
        for module in (live_tensors, held_tensors):
            monkeypatch.setattr(module, "Bound", partial(Bound, max_objects=10))

    def test_a_run_says_why_it_does_not_know_what_steps_keep(self):
        kept = KeptSteps()
        kept.begin()
        kept.stepped(100)
        assert kept.look() is None
        assert "more than 10 objects" in kept.reason

    def test_a_later_look_may_be_too_long_as_well(self, monkeypatch):
        with monkeypatch.context() as patch:
            patch.setattr(live_tensors, "Bound", Bound)
            kept = KeptSteps()
            kept.begin()
            kept.stepped(3)
        kept.stepped(100)
        assert kept.look() is None
        assert "more than 10 objects" in kept.reason
        kept.begin()  # it does not try again
        assert kept.look() is None
