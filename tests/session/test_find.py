"""`batchadvisor.find_batch_size`: a training that goes on as it was."""

import copy
import os
import random
import resource
import signal
from itertools import pairwise
from pathlib import Path

import batchadvisor
import numpy as np
import pytest
import torch
from batchadvisor.errors import InterruptedRunError, ScriptError, UsageError
from batchadvisor.probes.doors.step_on_batches import MadeBatches, StepOnBatches
from batchadvisor.probes.process.orders import RunTrial, WorkOrder
from batchadvisor.probes.worker.live import LocalWorker
from batchadvisor.records import TrialRequest, TurnsPlan
from torch import nn
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    TensorDataset,
)

pytestmark = pytest.mark.slow

QUICK = {"goal": "memory", "profile": False, "quiet": True, "budget": 60}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Training:
    """A trainer of the user's own, with all that a training may hold."""

    def __init__(self, seed=0):
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)
        self.model = nn.Sequential(
            nn.Linear(16, 32), nn.BatchNorm1d(32), nn.Dropout(0.2), nn.Linear(32, 1)
        )
        self.average = AveragedModel(self.model)
        self.average.requires_grad_(requires_grad=False)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.scheduler = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, 0.1, total_steps=60)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=3)
        self.drawn = np.random.default_rng(seed)
        self.num_steps = 0
        self.losses = []
        data = torch.randn(200, 16)
        self.loader = DataLoader(
            TensorDataset(data, data.sum(1, keepdim=True)),
            batch_size=8,
            shuffle=True,
            generator=torch.Generator().manual_seed(seed),
        )

    def step(self, batch):
        inputs, target = batch
        noise = random.random() + np.random.rand() + self.drawn.random()
        loss = nn.functional.mse_loss(self.model(inputs), target + 0.01 * noise)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        self.scheduler.step()
        self.average.update_parameters(self.model)
        self.num_steps += 1
        self.losses.append(loss.item())

    def make_batch(self, size):
        inputs = torch.randn(size, 16)
        return inputs, inputs.sum(1, keepdim=True)

    def everything(self):
        return copy.deepcopy(
            {
                "model": self.model.state_dict(),
                "average": self.average.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "scheduler": self.scheduler.state_dict(),
                "scaler": self.scaler.state_dict(),
                "losses": self.losses,
                "steps": self.num_steps,
                "next": (torch.rand(1), random.random(), np.random.rand(), self.drawn.random()),
                "order": self.loader.generator.get_state(),
            }
        )


def found_for(training, step=None, **options):
    """What a search says of a training whose own size is 8, or of another step of it."""
    options = {"own": 8, **QUICK, **options}
    if "loader" not in options:
        options["make_batch"] = training.make_batch
    return batchadvisor.find_batch_size(step or training.step, **options)


def same(one, other):
    """Whether two states are equal, bit for bit."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def trained(find=None):
    """A training of two epochs' parts, with a search in the middle of the first one."""
    training = Training()
    epoch = iter(training.loader)
    for _ in range(5):
        training.step(next(epoch))
    if find is not None:
        find(training)
    for batch in [*epoch][:4]:
        training.step(batch)
    for batch in training.loader:
        training.step(batch)
    return training.everything()


class TestAfterwards:
    @pytest.mark.parametrize("batches", ["made", "loaded", "by a lambda"])
    def test_the_training_goes_on_bit_for_bit(self, batches):
        found = []

        def find(training):
            before = [parameter.data_ptr() for parameter in training.model.parameters()]
            given = {
                "made": {"make_batch": training.make_batch},
                "loaded": {"loader": training.loader},
                "by a lambda": {"make_batch": lambda size: (*training.make_batch(size),)},
            }[batches]
            step = training.step if batches != "by a lambda" else lambda b: training.step((*b,))
            found.append(batchadvisor.find_batch_size(step, own=8, max_batch=64, **given, **QUICK))
            assert before == [parameter.data_ptr() for parameter in training.model.parameters()]

        assert same(trained(find), trained())
        assert found[0].batch_size == 64
        assert found[0].not_restored == ()

    def test_an_untouched_copy_would_differ(self):
        """The comparison above can fail."""
        assert not same(trained(lambda training: training.step(training.make_batch(8))), trained())

    def test_a_fresh_optimizer_is_fresh(self):
        training = Training()
        found_for(training, max_batch=16)
        assert not training.optimizer.state
        assert all(parameter.grad is None for parameter in training.model.parameters())
        assert training.num_steps == 0

    def test_gradients_that_wait_are_kept(self):
        training = Training()
        training.model(torch.randn(4, 16)).sum().backward()
        before = [parameter.grad.clone() for parameter in training.model.parameters()]
        found_for(training, max_batch=8)
        assert same([parameter.grad for parameter in training.model.parameters()], before)

    def test_what_cannot_be_restored_is_said(self):
        training = Training()
        stream = iter(range(10**9))
        total = torch.zeros(3)

        def step(batch):
            next(stream)
            training.step(batch)
            total.add_(1)

        found = found_for(training, step, max_batch=8)
        said = " ".join(found.not_restored)
        assert "stream is an iterator" in said
        assert "the steps wrote to a tensor of no model or optimizer" in said
        assert repr(found).count("Not as before: ") == 2

    def test_an_object_with_a_state_is_restored(self):
        training = Training()

        class Mean:
            def __init__(self):
                self.value = torch.zeros(2)

            def state_dict(self):
                return {"value": self.value}

            def load_state_dict(self, state):
                self.value = state["value"].clone()

        mean = Mean()

        def step(batch):
            training.step(batch)
            mean.value += 1

        found = found_for(training, step, max_batch=8, state=[mean])
        assert torch.equal(mean.value, torch.zeros(2))
        assert found.not_restored == ()


class TestMemory:
    def test_it_is_refused_in_the_middle_of_a_step(self):
        def find(training):
            def step(batch):
                training.step(batch)
                if len(batch[0]) > 40:
                    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate")

            found = found_for(training, step)
            assert "out_of_memory" in {trial.outcome for trial in found.record.trials}
            assert 32 <= found.batch_size <= 40

        assert same(trained(find), trained())

    def test_a_limit_on_the_cpu_is_the_kernels(self):
        """An allocation is really refused; the process has its own limit again afterwards."""
        training = Training()
        before = resource.getrlimit(resource.RLIMIT_DATA)
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
        held = []

        def step(batch):
            inputs, _ = batch
            held.append(inputs.repeat(1, 2**19))  # 32 MiB a sample
            held.clear()
            training.step(batch)

        limit = resident + 2**30
        found = found_for(training, step, own=2, start=256, max_batch=256, memory_limit_bytes=limit)
        refused = [trial for trial in found.record.trials if trial.outcome == "out_of_memory"]
        assert refused[0].batch_size == 256
        assert "DefaultCPUAllocator" in refused[0].detail
        assert 2 <= found.batch_size < 64
        assert resource.getrlimit(resource.RLIMIT_DATA) == before
        assert training.num_steps == 0


class TestAnswer:
    def test_its_fields(self):
        found = found_for(Training(), own=4, max_batch=64, budget="8s", goal="knee")
        own = found.batch_size == 4
        assert (found.ratio == 1.0) == own or found.batch_size is None
        if found.interval is not None:
            assert found.interval[0] <= found.ratio <= found.interval[1]
        assert found.why == found.record.advice.reason
        assert found.sureness == found.advice.sureness
        assert found.record.goal.budget_s == 8
        assert {trial.size_proof for trial in found.record.trials if trial.ran} == {"shape"}
        assert repr(found).startswith(found.advice.headline.split(":")[0])
        assert "<iframe" in found._repr_html_()

    def test_sizes_take_turns(self, folder):
        training = Training()
        sizes = []

        def step(batch):
            sizes.append(len(batch[0]))
            training.step(batch)

        order = WorkOrder(
            script="step", arguments=(), module=False, worker=0, device="cpu",
            memory_limit_bytes=None, data_limit_bytes=None, run_folder=str(folder),
            scratch_folder=str(folder), loader=None, batch_cap=None, profile_schedule=(0, 1, 3),
            with_stack=False, door="live",
        )  # fmt: skip
        worker = LocalWorker(
            StepOnBatches(step, MadeBatches(training.make_batch), own_size=4), order,
            batch_size=4, num_samples=None, log=folder, on_progress=lambda _: None,
        )  # fmt: skip
        worker.discover()
        sizes.clear()
        plan = TurnsPlan(sizes=(4, 16), num_steps=(1, 1), num_rounds=3)
        request = TrialRequest(batch_size=16, kind="turns", purpose="confirm", turns=plan)
        order = RunTrial(request=request, ordinal=1, precision=0.1, time_limit_s=9)
        trial = worker.ask(order).trial
        worker.end()
        assert trial.outcome == "ok"
        assert len(trial.turns.step_s) >= 3
        assert set(sizes) == {4, 16}
        assert sum(a != b for a, b in pairwise(sizes)) >= 3

    def test_the_own_size_is_of_the_loader(self):
        training = Training()
        found = found_for(training, own=None, loader=training.loader, max_batch=24)
        assert found.record.discovery.native_batch_size == 8
        assert found.record.discovery.primary.num_samples == 200
        assert found.batch_size == 24
        assert found.ratio is None  # nothing was timed

    def test_an_unknown_own_size_is_unknown(self):
        found = found_for(Training(), own=None, max_batch=16)
        assert found.record.discovery.why_own_unknown == "own= was not given"
        assert found.batch_size == 16
        assert found.advice.change == "batch_size → 16"

    @pytest.mark.parametrize("persistent", [False, True])
    def test_a_loader_with_processes(self, persistent):
        training = Training()
        loader = DataLoader(
            training.loader.dataset, batch_size=8, num_workers=1, persistent_workers=persistent
        )
        epoch = iter(loader)
        first = next(epoch)
        before = torch.get_rng_state()
        found = found_for(training, own=None, loader=loader, max_batch=16)
        assert torch.equal(before, torch.get_rng_state())
        assert found.batch_size == 16
        assert loader.batch_size == 8
        assert found.not_restored == ()
        rest = [first, *epoch]
        assert torch.equal(torch.cat([batch[0] for batch in rest]), loader.dataset.tensors[0])

    @pytest.mark.parametrize("stateful", [False, True])
    def test_a_batch_sampler_of_the_users_own(self, stateful):
        """It is tried before any step: it may draw random numbers, and takes other sizes."""
        training = Training()

        class Own(BatchSampler):
            def __iter__(self):
                torch.rand(1)
                return super().__iter__()

        class Stateful(Own):
            def state_dict(self):
                return {}

            def load_state_dict(self, state):
                pass

        kind = Stateful if stateful else Own
        sampler = RandomSampler(range(200), generator=torch.Generator().manual_seed(5))
        batches = kind(sampler, 8, False)
        loader = DataLoader(training.loader.dataset, batch_sampler=batches)
        states = torch.get_rng_state(), sampler.generator.get_state()
        found = found_for(training, own=None, loader=loader, max_batch=16)
        assert found.batch_size == 16
        assert batches.batch_size == 8
        assert same(states, (torch.get_rng_state(), sampler.generator.get_state()))

    def test_a_stream(self):
        training = Training()

        class Stream(IterableDataset):
            def __iter__(self):
                return iter([training.make_batch(1)] * 30)

        loader = DataLoader(
            Stream(),
            batch_size=4,
            collate_fn=lambda rows: tuple(map(torch.cat, zip(*rows))),  # noqa: B905
        )
        found = found_for(training, own=None, loader=loader, max_batch=32)
        assert found.batch_size == 32
        assert len([*loader]) == 8


def of_own(size):
    return torch.randn(12, 16), torch.randn(12, 1)


def twice(size):
    return torch.randn(2 * size, 16), torch.randn(2 * size, 1)


def with_features_as_long(size):
    return torch.randn(5, 8), torch.randn(5, 1)


class TestBadInput:
    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({"train_step": lambda: None}, r"train_step takes \(\), and is called with a batch"),
            ({"train_step": 3}, "it is no function but int"),
            ({"make_batch": None}, "neither make_batch nor loader= was given"),
            ({"loader": DataLoader([1, 2])}, "both given"),
            ({"make_batch": None, "loader": [1, 2]}, "loader is a list, and no DataLoader"),
            ({"make_batch": None, "loader": DataLoader([1], batch_size=None)}, "cannot be changed"),
            ({"make_batch": lambda: None}, r"make_batch takes \(\)"),
            ({"make_batch": of_own}, r"make_batch\(8\) returned another size .* \[12, 16\]"),
            ({"make_batch": twice}, r"make_batch\(8\) returned another size .* \[16, 16\]"),
            ({"make_batch": with_features_as_long}, r"make_batch\(16\) returned another size"),
            ({"own": 0}, "own=0"),
            ({"own": True}, "own=True"),
            ({"num_samples": 2.5}, "num_samples=2.5"),
            ({"budget": "soon"}, "budget: 'soon' is not a duration"),
            ({"budget": 0}, "budget of 0"),
            ({"goal": "best"}, "goal"),
            ({"max_batch": 3, "multiple_of": 8}, "no multiple of 8"),
            ({"device": "cuda"}, "cuda"),
            ({"device": "tpu"}, "no such device"),
            ({"state": [3]}, "state= holds a int"),
        ],
    )
    def test_it_is_refused_at_once(self, given, said, folder):
        training = Training()
        call = {"train_step": training.step, "make_batch": training.make_batch, "own": 8, **QUICK}
        before = training.everything()
        state = torch.get_rng_state()
        with pytest.raises(UsageError, match=said):
            batchadvisor.find_batch_size(**{**call, **given})
        assert torch.equal(torch.get_rng_state(), state)
        assert same(before["model"], training.model.state_dict())
        assert training.num_steps == 0
        assert list(folder.iterdir()) == []

    def test_a_step_that_fails_at_its_own_size(self):
        training = Training()

        def step(batch):
            training.step(batch)
            raise ValueError("the mask has another shape")

        before = copy.deepcopy(training.model.state_dict())
        with pytest.raises(ScriptError, match="step raised ValueError: the mask has") as caught:
            found_for(training, step)
        assert "test_find.py" in caught.value.script_traceback
        assert same(before, training.model.state_dict())

    def test_an_own_size_that_does_not_fit(self):
        training = Training()
        training.model.eval()  # BatchNorm takes a single sample then

        def step(batch):
            if len(batch[0]) > 5:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate")
            training.step(batch)

        found = found_for(training, step)
        assert 3 <= found.batch_size <= 5
        assert found.ratio is None

    def test_an_interrupt_leaves_the_training_as_it_was(self, folder):
        training = Training()
        before = copy.deepcopy(training.model.state_dict())
        num = []

        def step(batch):
            training.step(batch)
            num.append(0)
            if training.num_steps == 3 or len(num) == 5:
                os.kill(os.getpid(), signal.SIGINT)

        with pytest.raises(InterruptedRunError, match="interrupted after"):
            found_for(training, step)
        assert same(before, training.model.state_dict())
        assert training.num_steps == 0
