"""What exceptions and exits mean, and tracebacks without our own frames."""

import functools
import os
import runpy
import shutil
import signal
import traceback
from fractions import Fraction
from types import SimpleNamespace

import pytest
import torch
from batchadvisor.probes.loader.batch_size_reader import BatchSizeReader
from batchadvisor.probes.process.faults import (
    is_out_of_memory,
    largest_tensor,
    outcome_of_exit,
    raised_by_us,
    script_traceback,
)
from batchadvisor.probes.source import call_site
from batchadvisor.probes.source.call_site import is_own, is_users
from batchadvisor.probes.windows.profiling import TraceProfiler
from batchadvisor.probes.worker import patches, saves
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter
from torch.utils.flop_counter import FlopCounterMode


def raised(function, *arguments, **options):
    """The exception that a call raises."""
    try:
        function(*arguments, **options)
    except BaseException as error:  # noqa: BLE001
        return error
    pytest.fail("nothing was raised")


def asked_of_a_library(text):
    """What a library raises, with a text, where a measurement calls it."""
    stopped = SimpleNamespace(stop=functools.partial(Fraction, text))
    return raised(TraceProfiler.abandon, SimpleNamespace(_profiler=stopped))


@pytest.mark.filterwarnings("ignore:.*prototype")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_the_largest_tensor_that_has_a_shape(layout):
    def step():
        held = torch.nested.nested_tensor([torch.ones(3, 4)], layout=layout), torch.ones(2, 3)
        raise ValueError(held[0].dim())

    assert largest_tensor(raised(step)) == (2, 3)


class TestOutOfMemory:
    def test_an_error_raised_while_a_refusal_was_handled(self):
        def unchained():
            try:
                raise MemoryError
            except MemoryError:
                raise ValueError("my trainer failed") from None

        def chained():
            try:
                raise torch.OutOfMemoryError("CUDA out of memory.")
            except RuntimeError as error:
                raise ValueError("my trainer failed") from error

        def handled_before():
            try:
                raise MemoryError
            except MemoryError:
                pass
            raise ValueError("a bug")

        assert is_out_of_memory(raised(unchained))
        assert is_out_of_memory(raised(chained))
        assert not is_out_of_memory(raised(handled_before))


SCRIPT = """
import torch
from torch.utils.data import Dataset

def fetch(index):
    return 1 / index

def train():
    try:
        fetch(0)
    except ZeroDivisionError as error:
        raise RuntimeError("ünïcode") from error

train()
"""


class TestTraceback:
    def test_no_frame_of_ours_or_of_runpy(self, tmp_path, monkeypatch):
        script = tmp_path / "script.py"
        script.write_text(SCRIPT)
        # This file plays the part of our own room here: its frame has to go.
        monkeypatch.setattr(call_site, "_OWN", "/nowhere")
        monkeypatch.setattr(
            "batchadvisor.probes.process.faults.is_own", lambda name: name == __file__
        )
        error = raised(runpy.run_path, str(script))
        text = script_traceback(error)
        files = [line for line in text.splitlines() if line.startswith("  File ")]
        assert files[-1] == f'  File "{script}", line 12, in train'
        assert all(str(script) in line for line in files)
        assert text.startswith("Traceback (most recent call last):\n")
        assert "ZeroDivisionError: division by zero" in text
        assert "The above exception was the direct cause" in text
        assert text.endswith("RuntimeError: ünïcode\n")

    def test_a_chain_that_bites_its_tail(self):
        first, second = ValueError("one"), ValueError("two")
        first.__cause__, second.__cause__ = second, first
        assert "ValueError: one" in script_traceback(first)
        assert not is_out_of_memory(first)

    def test_whose_fault(self):
        assert not raised_by_us(raised(int, "x"))

        class Broken:
            @property
            def shape(self):
                raise ValueError("the user's own")

        error = raised(BatchSizeReader().read, [Broken()])
        assert not raised_by_us(error)

        class Odd:
            shape = ("no number",)

        assert raised_by_us(raised(BatchSizeReader().read, [Odd()]))

    def test_a_library_that_a_measurement_asked(self):
        """Unless a kernel of the script's failed: the next call that waits for it raises that."""
        assert raised_by_us(asked_of_a_library("none"))
        assert not raised_by_us(asked_of_a_library("CUDA error: device-side assert triggered"))

    def test_torchs_counter_of_operations(self):
        """It runs in a step that we count, below the script's own call."""

        def step():
            with FlopCounterMode(display=False, custom_mapping={torch.ops.aten.mm: Fraction}):
                torch.mm(torch.ones(2, 2), torch.ones(2, 2))

        assert raised_by_us(raised(step))

    def test_the_system_where_we_stand_in_place_of_its_call(self, monkeypatch, tmp_path):
        for module, name in ((os, "remove"), (os, "unlink"), (shutil, "rmtree")):
            monkeypatch.setattr(module, name, getattr(module, name))
        saves._follow_removals({}, saves._Earlier({}, lambda: True))
        error = raised(os.remove, tmp_path / "missing")
        assert is_own(traceback.extract_tb(error.__traceback__)[-1].filename)
        assert not raised_by_us(error)

    @pytest.mark.parametrize("options", [{"batch_size": 0}, {"num_workers": -1}])
    def test_a_library_that_the_script_asked_through_us(self, options):
        """Our wrapper of a loader's constructor hands on what the script gave it."""
        door = SimpleNamespace(watch=SimpleNamespace(made_loader=print, makes_loader=print))
        native = [(each, vars(each).copy()) for each in (DataLoader, _BaseDataLoaderIter)]
        try:
            patches._watch_loaders(door, print)
            error = raised(DataLoader, [1], **options)
        finally:
            for each, names in native:
                for name in ("__init__", "__next__", "_reset"):
                    if name in names:
                        setattr(each, name, names[name])
        assert any(is_own(frame.filename) for frame in traceback.extract_tb(error.__traceback__))
        assert not raised_by_us(error)


@pytest.mark.parametrize(
    ("file", "users"),
    [
        ("/home/me/train.py", True),
        ("/home/me/.local/lib/python3.11/site-packages/transformers/trainer.py", False),
        ("/usr/lib/python3/dist-packages/accelerate/data_loader.py", False),
        ("<frozen importlib._bootstrap>", False),
    ],
)
def test_whose_code_it_is(file, users):
    """A package may be installed for one user, or by the system."""
    assert is_users(file) is users


class TestExit:
    @pytest.mark.parametrize(
        ("status", "killed_for_memory", "outcome", "part"),
        [
            (-signal.SIGKILL, True, "out_of_memory", "SIGKILL"),
            (-signal.SIGKILL, None, "out_of_memory", "no counter"),
            (-signal.SIGKILL, False, "crashed", "not by the kernel"),
            (-signal.SIGSEGV, False, "crashed", "died by SIGSEGV"),
            (-signal.SIGABRT, False, "crashed", "died by SIGABRT"),
            (-200, False, "crashed", "signal 200"),
            (3, False, "crashed", "exit code 3"),
            # All went well: it is started again, as one is that ends in the usual way.
            (0, False, "script_ended", "os._exit"),
        ],
    )
    def test_what_it_means(self, status, killed_for_memory, outcome, part):
        told, detail = outcome_of_exit(status, killed_for_memory=killed_for_memory)
        assert told == outcome
        assert part in detail
