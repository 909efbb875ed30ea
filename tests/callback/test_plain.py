"""The callback around a plain loop of torch."""

from __future__ import annotations

import ast
import contextlib
import copy
import gc
import json
import os
import random
import signal
import subprocess
import sys
import weakref
from dataclasses import fields
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from batchadvisor import ProfilingCallback
from batchadvisor import callback as package
from batchadvisor.advisor.advise import advise
from batchadvisor.callback.options import GivenOptions, Options, script
from batchadvisor.errors import UsageError
from batchadvisor.session.recording.store import read_record, read_samples

from ..needs import bench
from . import loops

BESIDE_OTHERS = """
import json, sys, time
import torch
from batchadvisor import ProfilingCallback
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(4096, 64)), batch_size=8)
model = torch.nn.Linear(64, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
print("imported", flush=True)
input()
with ProfilingCallback("log", profile=False, quiet=True) as prof:
    begun = time.monotonic()
    for (rows,) in prof.watch(loader):
        model(rows).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        prof.step()
        prof._watch.facts.world_size = int(sys.argv[1])
        if time.monotonic() - begun > 1.0:
            break
causes = [(cause.kind, cause.message) for cause in prof.record.trials[0].causes]
told = [one.message for one in prof.advice.findings if one.rule == "callback.others"]
print(json.dumps([causes, told]))
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """One watched training with a profiled window, and the same one unwatched."""
    folder = tmp_path_factory.mktemp("run") / "log"
    plain = loops.train()
    losses, weights, prof = loops.watched(folder, profile_after=4)
    return plain, (losses, weights), prof, folder


class TestRecord:
    def test_the_training_is_the_same_to_the_bit(self, run):
        (losses, weights), (watched_losses, watched_weights), _, _ = run
        assert losses == watched_losses
        assert all(torch.equal(a, b) for a, b in zip(weights, watched_weights, strict=True))

    def test_it_counts_what_the_loop_did(self, run):
        _, _, prof, folder = run
        record = read_record(folder)
        assert record == prof.record
        assert record.state == "finished"
        observed = record.observed
        assert observed.num_steps == loops.TOTAL_STEPS
        assert observed.num_micro_batches == loops.BATCHES * loops.EPOCHS
        assert observed.num_samples == loops.NUM_SAMPLES * loops.EPOCHS
        assert observed.num_epochs == loops.EPOCHS
        assert {size.batch_size: size.num_micro_batches for size in observed.sizes} == {8: 36, 4: 3}
        assert observed.framework == "plain"
        assert observed.num_tokens is None
        assert "num_tokens" in observed.unavailable

    @pytest.mark.slow
    @pytest.mark.parametrize("ranks", [1, 2])
    def test_what_used_the_cores_meanwhile(self, ranks, tmp_path):
        """As many busy processes as cores, beside the loop below the same parent: strangers
        to a training of one process, and further ranks to one of several."""
        (tmp_path / "train.py").write_text(BESIDE_OTHERS)
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "train.py", str(ranks)]
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, cwd=tmp_path, env=environment, **streams) as process:
            assert process.stdout.readline() == "imported\n"  # which takes long beside others
            with bench("loads").neighbours(os.cpu_count() or 1, "busy-beside"):
                said, _ = process.communicate("go on\n")
        assert process.returncode == 0
        causes, told = json.loads(said.splitlines()[-1])
        named = [text for kind, text in causes if kind == "processes" and "busy-beside" in text]
        assert bool(named) is (ranks == 1)
        assert all(kind != "frequency" for kind, _ in causes)
        if ranks == 1:
            assert "while it trained, other programs used" in told[0]
            assert "busy-beside" in told[0]

    def test_what_it_found_out(self, run):
        record = run[2].record
        assert (record.device.kind, record.device.capacity_bytes > 0) == ("cpu", True)
        discovery = record.discovery
        assert discovery.native_batch_size == 8
        assert discovery.micro_batches == 2
        assert discovery.primary.num_samples == 100
        assert discovery.primary.sampler == "RandomSampler"
        assert discovery.primary.place.file.endswith("loops.py")
        assert [optimizer.name for optimizer in discovery.optimizers] == ["AdamW"]
        assert discovery.optimizers[0].learning_rate == 1e-3
        assert discovery.num_parameters == 10 * 32 + 32 + 64 + 64 + 2
        assert discovery.norm_layers.batch_norm >= 1
        (trial,) = record.trials
        assert (trial.batch_size, trial.micro_batches, trial.outcome) == (8, 2, "ok")
        assert trial.step_s.median > 0
        assert 0 < trial.input_wait_s.median < trial.step_s.median
        assert trial.samples_per_s.median == pytest.approx(16 / trial.step_s.median)
        assert trial.memory.peak_bytes > 0
        tail = trial.tail
        assert (tail.num_samples, tail.outcome, tail.num_non_finite) == (4, "ok", None)

    def test_the_window(self, run):
        _, _, prof, folder = run
        record = prof.record
        profile = record.trials[0].profile
        assert record.observed.profiled_steps == (10,)  # not 6: the epoch's end fell into it
        assert profile.num_steps == 3
        assert profile.operators_pct > 0
        assert (folder / profile.trace).exists()
        assert any(operator.name == "aten::addmm" for operator in profile.operators)

    def test_a_wait_is_no_more_than_all_of_the_time(self, tmp_path):
        """A device that is behind the host gets through a queue in less than the host waits."""
        _, _, prof = loops.watched(tmp_path, profile=False, quiet=True)
        recorder = prof._watch.recorder
        recorder.core.recent[:] = [5, 50, 400, 80]
        assert recorder._news(prof.record).scalars["batchadvisor/input wait (%)"] == 100

    def test_samples_and_scalars(self, run):
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        folder = run[3]
        rows = read_samples(folder)
        assert rows[-1]["trial"] == 0
        assert rows[-1]["num_samples"] == 16
        events = EventAccumulator(str(folder))
        events.Reload()
        rate = events.Scalars("batchadvisor/samples per second")
        assert rate[-1].step == loops.TOTAL_STEPS
        assert rate[-1].value > 0
        assert events.Scalars("batchadvisor/input wait (%)")[-1].value > 0

    def test_advice_on_a_laptop(self, run):
        advice = advise(read_record(run[3]))
        assert advice.recommended.batch_size == 8
        assert advice.headline.startswith("Batch size 8 as it ran: ")
        assert "this size alone" in advice.reason
        said = {finding.rule: finding for finding in advice.findings}
        assert said["callback.headroom"].confidence == "estimate"
        assert said["callback.try"].confidence == "estimate"
        assert advice.tail.last_batch == 4
        text = str(run[2])
        assert "21 optimizer steps, 39 micro-batches, 300 samples" in text
        assert "CPU inside operators" in text
        assert "estimate: " in text
        assert "4 samples instead of 8; it ran" in text
        assert max(map(len, text.splitlines()[:-3])) <= 100

    def test_the_command_line_takes_it(self, run):
        command = [sys.executable, "-m", "batchadvisor", "show", str(run[3])]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "Batch size 8 as it ran" in done.stdout
        assert "the parameters were not looked at" in done.stdout

    def test_hooks_are_gone(self, run):
        from torch.autograd.profiler import profile
        from torch.optim.optimizer import _global_optimizer_post_hooks

        assert not _global_optimizer_post_hooks
        assert "guarded" not in profile._prepare_trace.__qualname__


class TestTheUsersOwn:
    def test_random_numbers(self, tmp_path):
        def draws():
            return random.random(), np.random.rand(), torch.rand(1).item()

        def seed():
            for module_seed in (random.seed, np.random.seed, torch.manual_seed):
                module_seed(5)

        seed()
        wanted = draws()
        seed()
        with ProfilingCallback(tmp_path, quiet=True) as prof:
            for _ in prof.watch([torch.ones(4)] * 30):
                prof.step()
        assert draws() == wanted

    def test_signal_handlers(self, tmp_path):
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        with ProfilingCallback(tmp_path, quiet=True):
            assert {number: signal.getsignal(number) for number in before} == before

    @pytest.mark.parametrize("given", [False, True])
    def test_a_model_is_freed_as_without_it(self, tmp_path, given):
        """At once, and not by the garbage collector: its memory is wanted for the next one."""
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        told = {"model": model, "optimizer": optimizer} if given else {}
        with ProfilingCallback(tmp_path, quiet=True, noise_scale=True, **told) as prof:
            for batch in prof.watch([torch.ones(8, 4)] * 20):
                model(batch).sum().backward()
                optimizer.step()
                prof.step()
        there = weakref.ref(model.weight)
        gc.disable()
        try:
            del model, optimizer, told
            if given:  # it was handed over
                del prof
            assert there() is None
        finally:
            gc.enable()

    @pytest.mark.parametrize("quiet", [False, True])
    def test_standard_output(self, tmp_path, capfd, quiet):
        loops.watched(tmp_path, profile=False, quiet=quiet)
        out, err = capfd.readouterr()
        assert out == ""
        assert bool(err) is ("Batch size 8 as it ran" in err) is not quiet

    def test_the_loader_passes_through(self, tmp_path):
        loader = loops.data()
        with ProfilingCallback(tmp_path, quiet=True, profile=False) as prof:
            seen = prof.watch(loader)
            assert len(seen) == len(loader)
            assert seen.dataset is loader.dataset
            assert copy.copy(seen).dataset is loader.dataset
            assert not hasattr(seen, "nonsense")
            assert sum(len(x) for x, _ in seen) == 100
        assert prof.record.observed.num_steps == 0


class TestWhatALoopForgets:
    @pytest.mark.parametrize(
        ("watches", "steps", "words", "remedy"),
        [
            (True, False, "watch() gave 30 batches and step() was never", "call prof.step() after"),
            (False, True, "no loader was watched", "loop over prof.watch(loader)"),
        ],
    )
    def test_it_is_said_what_to_call(self, tmp_path, capfd, watches, steps, words, remedy):
        batches = [torch.ones(4, 3)] * 30
        with ProfilingCallback(tmp_path, profile=False) as prof:
            for _ in prof.watch(batches) if watches else batches:
                if steps:
                    prof.step()
        assert prof.record.observed.num_steps == (30 if steps else 0)
        (doubt,) = prof.record.doubts
        for said in (doubt, " ".join(capfd.readouterr().err.split())):
            assert words in said
            assert remedy in said

    def test_neither(self, tmp_path):
        with ProfilingCallback(tmp_path, profile=False, quiet=True) as prof:
            pass
        assert prof.record.doubts == ()


class TestFolders:
    def test_an_earlier_record_is_kept(self, tmp_path):
        loops.watched(tmp_path, epochs=1, profile=False, quiet=True)
        first = read_record(tmp_path)
        loops.watched(tmp_path, epochs=2, profile=False, quiet=True)
        assert read_record(tmp_path).observed.num_epochs == 2
        (kept,) = tmp_path.glob("record-*.json")
        assert read_record(kept) == first

    def test_all_earlier_ones_are_kept(self, tmp_path):
        """Also those of one second, and none leaves its page of the memory to the next."""
        error = torch.OutOfMemoryError("CUDA out of memory.")
        for failure in (error, None, None, None):
            with (
                contextlib.suppress(torch.OutOfMemoryError),
                ProfilingCallback(tmp_path, quiet=True, scalars=False) as prof,
            ):
                for _ in prof.watch([torch.ones(4)] * 3):
                    if failure is not None:
                        raise failure
                    prof.step()
            os.utime(tmp_path / "record.json", (0, 0))
            assert ("memory.html" in str(prof)) is (failure is not None)
        assert len(list(tmp_path.glob("record-*.json"))) == 3

    def test_one_is_made(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["some/train.py", "--lr", "1"])
        main = sys.modules["__main__"]  # has no file where pytest itself was started otherwise
        monkeypatch.setattr(main, "__file__", "some/train.py", raising=False)
        _, _, prof = loops.watched(None, epochs=1, profile=False, quiet=True)
        (folder,) = (tmp_path / "batchadvisor-runs").iterdir()
        assert folder.name.startswith("train-")
        assert read_record(folder) == prof.record
        assert prof.record.script.arguments == ("--lr", "1")

    def test_one_that_cannot_be_written(self, tmp_path):
        (tmp_path / "file").write_text("")
        with (
            pytest.raises(UsageError, match="cannot write into") as error,
            ProfilingCallback(tmp_path / "file" / "log"),
        ):
            pass
        assert "logdir=" in error.value.remedy  # the callback has no --output

    def test_one_without_room(self, tmp_path, fill_disk):
        fill_disk()
        with pytest.raises(UsageError, match="No space left") as error, ProfilingCallback(tmp_path):
            pass
        assert "logdir=" in error.value.remedy
        assert "--output" not in str(error.value)

    def test_one_that_another_callback_writes(self, tmp_path):
        with (
            ProfilingCallback(tmp_path, quiet=True),
            pytest.raises(UsageError, match="another run") as error,
            ProfilingCallback(tmp_path),
        ):
            pass
        assert "logdir=" in error.value.remedy
        assert "--output" not in str(error.value)


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "part"),
        [
            ({"profile_steps": 0}, "profile_steps=0"),
            ({"profile_every": -1}, "profile_every=-1"),
            ({"batch_size": "8"}, "batch_size='8'"),
            ({"margin": 5}, "margin=5"),
            ({"margin": "5%"}, "margin='5%'"),
        ],
    )
    def test_bad_ones_are_refused(self, options, part, tmp_path):
        with pytest.raises(UsageError, match=part) as error:
            ProfilingCallback(tmp_path / "log", **options)
        assert error.value.remedy
        assert not (tmp_path / "log").exists()

    def test_outside_the_with(self, tmp_path):
        with pytest.raises(UsageError, match="is not watching a run"):
            ProfilingCallback(tmp_path).step()


def test_the_import_is_light(tmp_path):
    code = "import batchadvisor, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, env=os.environ)


class TestEventFiles:
    def test_they_grow_with_the_training(self, tmp_path):
        from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer

        reader, seen = EventMultiplexer(), []

        def each(number):
            if number in (1, 30):
                prof._watch.recorder._saver.wait()
                reader.AddRunsFromDirectory(str(tmp_path))
                reader.Reload()
                seen.append(set(reader.Runs()))

        with ProfilingCallback(tmp_path, quiet=True, profile=False) as prof:
            loops.train(prof, each=each)
        assert seen[0] == set()
        assert "traces/batch_size=0008" in seen[1], "while it trains"
        reader.AddRunsFromDirectory(str(tmp_path))
        reader.Reload()
        record = read_record(tmp_path)
        (value,) = reader.Tensors("traces/batch_size=0008", "sweep/samples per second")[
            -1
        ].tensor_proto.float_val
        assert value == pytest.approx(record.trials[0].samples_per_s.median, rel=1e-6)
        (text,) = reader.Tensors("traces", "advice")[-1].tensor_proto.string_val
        assert b"Batch size 8 as it ran" in text

    def test_where_they_cannot_be_written(self, tmp_path, capfd):
        """The record is there, and the reason is said once."""
        (tmp_path / "traces").write_text("no folder")
        _, _, prof = loops.watched(tmp_path, profile=False)
        said = capfd.readouterr().err
        assert said.count("event files for TensorBoard: ") == 1
        assert "traces" in said
        assert read_record(tmp_path) == prof.record
        assert prof.record.state == "finished"
        assert prof.record.doubts == ()

    def test_without_scalars_there_are_none(self, tmp_path):
        loops.watched(tmp_path, quiet=True, profile=False, scalars=False)
        assert not list(tmp_path.rglob("*tfevents*"))


FOLDER = Path(package.__file__).parent / "adapters"


@pytest.mark.parametrize("name", package.__all__)
def test_the_signature_of_a_callback_shows_every_option(name):
    """Editors look through `Unpack`; read without the callback's framework."""
    tree = ast.parse((FOLDER / f"{package._HOMES[name]}.py").read_text())
    (made,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    (init,) = (node for node in made.body if getattr(node, "name", "") == "__init__")
    assert init.args.kwarg is not None
    assert ast.unparse(init.args.kwarg.annotation) == "Unpack[GivenOptions]"


def test_they_are_the_fields_of_the_options():
    shown = {field.name: field.type for field in fields(Options) if field.name != "logdir"}
    types = {name: kind.__forward_arg__ for name, kind in GivenOptions.__annotations__.items()}
    assert types == shown


def test_an_option_that_does_not_exist(tmp_path):
    with pytest.raises(TypeError, match="profil"):
        ProfilingCallback(tmp_path, profil=True)


def test_the_program_of_a_ray_worker_is_not_the_users_script(monkeypatch):
    monkeypatch.setattr("sys.argv", ["/env/ray/_private/workers/default_worker.py", "--node"])
    assert script().endswith("default_worker.py")  # somebody's own, without Ray
    monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))
    assert script() == "ray-worker"
