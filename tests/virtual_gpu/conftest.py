"""The stand-in for NVML, which the virtual GPU drives; whole runs on it in an empty folder."""

import gc

import pytest

from ..nvml.conftest import stub, stub_folder
from .machine import Machine

__all__ = ["stub", "stub_folder"]


@pytest.fixture
def machine(stub, monkeypatch, tmp_path):
    """Makes a machine for a script: `machine(gpu, script, **options)`."""
    monkeypatch.chdir(tmp_path)
    gc.freeze()  # windows collect garbage: not that of all tests before
    yield lambda gpu, script, **options: Machine(gpu, script, monkeypatch, stub, **options)
    gc.unfreeze()
