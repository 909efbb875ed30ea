"""What lives in a process and what holds it; a look ends where a training would wait too long, and
leaves nothing behind in the script's frames.
"""

import gc
import itertools
import weakref
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
        ({"clock": itertools.count(0.0).__next__, "max_s": 0.5}, r"takes more than 0\.5 s"),
    ],
)
def test_too_many_are_not_looked_through(limits, words):
    with pytest.raises(LookTooLongError, match=words):
        objects_of(Kept, bound=Bound(**limits))


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


def test_what_cycle_keeps_of_a_pass_ends_with_it():
    batches = itertools.cycle(torch.ones(3) for _ in itertools.count())
    kept = []
    look = live_tensors.LiveTensors()
    for _ in range(20):
        next(batches)
    assert look.since(20).is_bounded
    for _ in range(20):
        kept.append(torch.ones(3))  # noqa: PERF401
    assert not look.since(20).is_bounded


def test_a_look_keeps_no_local_of_the_script_alive():
    kept = []
    look = live_tensors.LiveTensors()
    for _ in range(20):
        activations = torch.ones(100)
        kept.append(torch.ones(3))
    alive = weakref.ref(activations)
    assert look.since(20).holder == "kept"
    del activations
    gc.collect()
    assert alive() is None


def test_a_dict_that_the_script_has_by_locals_stays():
    rate = 0.1
    settings = locals()
    kept = []
    look = live_tensors.LiveTensors()
    for _ in range(20):
        kept.append(torch.ones(3))  # noqa: PERF401
    assert look.since(20).holder == "kept"
    assert settings["rate"] == rate


def test_losses_that_lie_where_gradients_died_are_new():
    """New gradients are no losses either: they take the place of others, and have no graph."""
    weights = [torch.ones(3, requires_grad=True) for _ in range(90)]
    for weight in weights:
        weight.grad = torch.ones(3)
    look = live_tensors.LiveTensors()
    gradients = [torch.ones(3) for _ in weights]
    for weight in weights:
        weight.grad = gradients.pop()
    losses = [(weights[0] * number).sum() for number in range(40)]
    kept = look.since(40)
    assert kept.more_tensors == len(losses)
    assert (kept.holder, kept.holder_kind, kept.with_graph) == ("losses", "list", True)


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
