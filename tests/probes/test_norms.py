"""Normalisation layers of a process: their kinds, and what steps do to their statistics."""

import gc

import pytest
import torch
from batchadvisor.probes.loader.compiled_modules import compiles
from batchadvisor.probes.loader.norms import RunningStatistics, count_norms
from batchadvisor.probes.worker.trial_task import check_tail
from batchadvisor.records import Trial
from torch import nn


@pytest.fixture
def layers():
    """A layer that will see short batches, one that is frozen, one without statistics.

    Layers of other tests, which a cycle or a cache may keep alive, train no more.
    """
    gc.collect()
    for thing in gc.get_objects():
        if issubclass(type(thing), nn.Module):
            thing.training = False
    return [
        nn.BatchNorm1d(64),
        nn.BatchNorm1d(64).eval(),
        nn.BatchNorm1d(64, track_running_stats=False),
    ]


def trial():
    return Trial(ordinal=0, worker=0, batch_size=2, kind="fit", purpose="tail", outcome="ok")


def test_statistics_before_and_after(layers):
    torch.manual_seed(0)
    norms = RunningStatistics()
    assert norms.num_layers == 1
    layers[0](10 * torch.randn(2, 64))
    before, after = norms.moved_most()
    assert before == 1.0
    assert after == pytest.approx(layers[0].running_var.mean().item())
    assert after > 2
    check = check_tail(trial(), [torch.ones(2)], norms, 1)
    assert (check.num_norms, check.num_steps, check.num_non_finite_norms) == (1, 1, 0)
    assert (check.running_var_before, check.running_var_after) == (before, after)


def test_statistics_that_are_no_numbers(layers):
    norms = RunningStatistics()
    layers[0](torch.full((2, 64), float("inf")))
    assert norms.num_non_finite() == 1
    assert norms.moved_most() is None
    check = check_tail(trial(), [torch.tensor([float("nan")])], norms, 2)
    assert (check.num_non_finite, check.num_non_finite_norms) == (1, 1)
    assert check.running_var_before is None


def test_without_norms():
    check = check_tail(trial(), [torch.ones(1)])
    assert (check.num_norms, check.num_non_finite, check.running_var_after) == (None, 0, None)


def test_kinds(layers):
    counts = count_norms([*layers, nn.GroupNorm(2, 4), nn.LayerNorm(3), object()])
    assert (counts.batch_norm, counts.group_norm, counts.layer_norm) == (2, 1, 1)


# torch's own, where it first loads its compiler.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled():
    plain = nn.Linear(1, 1)
    assert not compiles()
    compiled = torch.compile(plain)
    assert compiles()
    del compiled
