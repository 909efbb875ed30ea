"""A trace that cannot be kept: the reason is in the trial, and no draft stays."""

import gzip

import pytest
import torch
from batchadvisor.probes.windows.profiling import TraceProfiler
from batchadvisor.session.recording.traces import with_profile

from ..on_paper import trial_of

NAME = "w0t0.1700000000000.pt.trace.json"


def window(path):
    """A profiler whose steps are over."""
    profiler = TraceProfiler(path, path.parent, "cpu", (0, 1, 1), with_stack=False)
    profiler.start()
    assert not profiler.step()
    torch.ones(8).sum()
    assert profiler.step()
    return profiler


def test_it_is_packed(tmp_path):
    profile = window(tmp_path / NAME).finish()
    packed = with_profile(trial_of(8, profile=profile), tmp_path).profile
    assert packed.trace == f"{NAME}.gz"
    assert [path.name for path in tmp_path.iterdir()] == [f"{NAME}.gz"]
    assert b"traceEvents" in gzip.decompress((tmp_path / packed.trace).read_bytes())


def test_one_that_cannot_be_packed(tmp_path):
    profile = window(tmp_path / NAME).finish()
    (tmp_path / f"{NAME}.gz").mkdir()
    kept = with_profile(trial_of(8, profile=profile), tmp_path).profile
    assert kept.trace == NAME
    assert "could not be read: " in kept.unavailable["*"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [NAME, f"{NAME}.gz"]


def test_one_that_cannot_be_written(tmp_path):
    (tmp_path / NAME).mkdir()
    with pytest.raises(IsADirectoryError):
        window(tmp_path / NAME).finish()
    assert [path.name for path in tmp_path.iterdir()] == [NAME]
