"""The callback in real trainings of the Hugging Face Trainer."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref

import pytest
import torch
from batchadvisor.session.recording.store import read_record
from torch import nn

from ..needs import framework
from .watched import assert_failed, assert_found_out, assert_same_to_the_bit

transformers = framework("transformers")
pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.filterwarnings("ignore:.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*pin_memory.*:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning"),
]

NUM_SAMPLES, BATCH, ACCUMULATE, EPOCHS = 100, 8, 2, 3
BATCHES = 13


class Net(nn.Module):
    """A small classifier that keeps its losses and the sizes that it was given."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(10, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))
        self.losses, self.sizes = [], []
        self.fail_at = None

    def forward(self, x, labels):
        logits = self.net(x)
        loss = nn.functional.cross_entropy(logits, labels)
        if self.training:
            self.losses.append(loss.item())
            self.sizes.append(len(x))
            if self.fail_at is not None and len(self.sizes) == self.fail_at[0]:
                error, self.fail_at = self.fail_at[1], None
                raise error
        return {"loss": loss, "logits": logits}


def data(num=NUM_SAMPLES):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(num, 10, generator=generator)
    return [{"x": row, "labels": int(row[0] > 0)} for row in x]


def make(folder, *callbacks, fail_at=None, **options):
    arguments = transformers.TrainingArguments(
        output_dir=str(folder / "out"),
        per_device_train_batch_size=options.pop("batch", BATCH),
        gradient_accumulation_steps=ACCUMULATE,
        num_train_epochs=EPOCHS,
        report_to=[],
        save_strategy=options.pop("save_strategy", "no"),
        use_cpu=True,
        disable_tqdm=True,
        seed=3,
        **options,
    )
    transformers.set_seed(3)
    net = Net()
    net.fail_at = fail_at
    trainer = transformers.Trainer(
        model=net,
        args=arguments,
        train_dataset=data(),
        eval_dataset=data(20),
        callbacks=list(callbacks),
    )
    return trainer, net


def adapter(folder, **options):
    from batchadvisor.callback import HuggingFaceCallback

    return HuggingFaceCallback(folder / "log", **options)


class Counting(transformers.TrainerCallback):
    """A callback of the user's own."""

    def __init__(self):
        self.steps = 0

    def on_step_end(self, args, state, control, **kwargs):
        self.steps += 1


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trainer")
    trainer, plain = make(folder)
    trainer.train()
    own, callback = Counting(), adapter(folder, profile_after=4)
    trainer, net = make(folder, own, callback)
    trainer.train()
    return plain, net, trainer, own, read_record(folder / "log")


class TestTrain:
    def test_the_training_is_the_same_to_the_bit(self, run):
        assert_same_to_the_bit(*run[:2])

    def test_it_counts_what_the_loop_did(self, run):
        _, net, trainer, own, record = run
        observed = record.observed
        assert record.state == "finished"
        assert observed.framework == "transformers"
        assert observed.num_steps == trainer.state.global_step == own.steps == 21
        assert observed.num_micro_batches == len(net.sizes) == BATCHES * EPOCHS
        assert observed.num_samples == sum(net.sizes) == NUM_SAMPLES * EPOCHS
        assert observed.num_epochs == EPOCHS

    def test_what_it_found_out(self, run):
        assert_found_out(
            run[4], batch_size=BATCH, accumulate=ACCUMULATE, num_samples=NUM_SAMPLES, tail=4
        )

    def test_the_loader_has_its_class_back(self, tmp_path):
        seen = []

        class Keeping(transformers.TrainerCallback):
            def on_train_begin(self, args, state, control, train_dataloader=None, **kwargs):
                seen.append((train_dataloader, type(train_dataloader)))

        trainer, _ = make(tmp_path, Keeping(), adapter(tmp_path, profile=False, quiet=True))
        trainer.train()
        ((loader, native),) = seen
        assert type(loader) is native


def test_a_trainer_is_freed_as_without_it(tmp_path):
    """Not by the garbage collector, in which persistent data workers end seconds later."""
    trainer, net = make(tmp_path, adapter(tmp_path, profile=False, quiet=True), max_steps=2)
    trainer.train()
    there = weakref.ref(trainer.callback_handler.train_dataloader)
    gc.disable()
    try:
        del trainer, net
        assert there() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("again", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_trainer_can_be_copied_and_pickled_as_without_it(tmp_path, again):
    state = framework("accelerate.state")
    state.GradientState._reset_state()  # all Trainers share it: weak references to loaders that ran
    callback = adapter(tmp_path, quiet=True, profile=False)
    trainer, net = make(tmp_path, callback, max_steps=2)
    other = again(trainer)
    assert type(other) is transformers.Trainer
    other.train()
    assert net.losses == []
    assert callback.record is None
    net.fail_at = (1, ValueError("mine"))
    with pytest.raises(ValueError, match="mine"):
        trainer.train()
    assert_failed(tmp_path / "log", "ValueError: mine", 0)


def test_evaluation_and_saves_belong_to_no_step(tmp_path):
    callback = adapter(tmp_path, profile=False, quiet=True)
    trainer, net = make(
        tmp_path, callback, eval_strategy="steps", eval_steps=4, save_strategy="steps", save_steps=5
    )
    trainer.train()
    assert callback.record.observed.num_steps == trainer.state.global_step
    assert callback.record.observed.num_samples == sum(net.sizes)


def test_a_resumed_epoch_is_seen(tmp_path):
    """The Trainer goes on with another loader in the middle of an epoch."""
    trainer, _ = make(tmp_path, save_strategy="steps", save_steps=2, max_steps=2)
    trainer.train()
    callback = adapter(tmp_path, profile=False, quiet=True)
    native = transformers.trainer.skip_first_batches
    trainer, net = make(tmp_path, callback, max_steps=7)
    trainer.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-2"))
    observed = callback.record.observed
    assert observed.num_steps == 5
    assert observed.num_micro_batches == len(net.sizes) == BATCHES - 2 * ACCUMULATE
    assert observed.num_samples == sum(net.sizes)
    assert callback.record.trials[0].step_s is not None
    assert transformers.trainer.skip_first_batches is native


def test_a_resumed_training_with_another_size(tmp_path):
    """The state of the checkpoint names the size of then."""
    make(tmp_path, save_strategy="steps", save_steps=2, max_steps=2, batch=4)[0].train()
    callback = adapter(tmp_path, profile=False, quiet=True)
    trainer, net = make(tmp_path, callback, max_steps=7)
    trainer.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-2"))
    record = callback.record
    assert record.discovery.native_batch_size == BATCH
    assert record.observed.num_samples == sum(net.sizes)


class NoLength(torch.utils.data.Dataset):
    """A sampler of the user's own draws from it."""

    def __getitem__(self, place):
        return data()[place]


def test_a_dataset_without_a_length(tmp_path):
    """As torch allows; the batches come from a batch sampler."""
    callback = adapter(tmp_path, profile=False, quiet=True)
    trainer, net = make(tmp_path, callback, max_steps=4)
    batches = [list(range(place, place + BATCH)) for place in range(0, 80, BATCH)]
    loader = torch.utils.data.DataLoader(NoLength(), batch_sampler=batches)
    trainer.get_train_dataloader = lambda: trainer.accelerator.prepare(loader)
    trainer.train()
    assert callback.record.state == "finished"
    assert callback.record.observed.num_samples == sum(net.sizes)


def test_an_exception_passes_unchanged(tmp_path):
    error = ValueError("mine")
    callback = adapter(tmp_path, quiet=True)
    trainer, _ = make(tmp_path, callback, fail_at=(20, error))
    with pytest.raises(ValueError, match="mine") as caught:
        trainer.train()
    assert caught.value is error
    assert_failed(tmp_path / "log", "ValueError: mine", num_steps=10)


def test_out_of_memory(tmp_path):
    error = torch.OutOfMemoryError("CUDA out of memory.")
    callback = adapter(tmp_path, quiet=True, profile=False)
    trainer, _ = make(tmp_path, callback, fail_at=(9, error))
    with pytest.raises(torch.OutOfMemoryError) as caught:
        trainer.train()
    assert caught.value is error
    assert callback.record.trials[-1].outcome == "out_of_memory"


def test_auto_find_batch_size_begins_again(tmp_path):
    """The Trainer swallows the error and goes on smaller; both sizes leave a record."""
    error = torch.OutOfMemoryError("CUDA out of memory.")
    callback = adapter(tmp_path, quiet=True, profile=False)
    trainer, _ = make(tmp_path, callback, fail_at=(6, error), auto_find_batch_size=True)
    trainer.train()
    record = callback.record
    assert record.state == "finished"
    size = record.discovery.native_batch_size
    assert size < BATCH
    assert record.observed.num_steps == trainer.state.global_step
    (earlier,) = (tmp_path / "log").glob("record-*.json")
    first = read_record(earlier)
    assert first.state == "failed"
    assert (first.trials[-1].batch_size, first.trials[-1].outcome) == (BATCH, "out_of_memory")


class OwnProfiler(transformers.TrainerCallback):
    """A profiler of the user's own, as the documentation of torch shows it for the Trainer.

    Args:
        begin, end: steps at which it starts and stops.
    """

    def __init__(self, begin, end):
        self.profiler = torch.profiler.profile()
        self._begin, self._end = begin, end

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == self._begin:
            self.profiler.start()

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self._end:
            self.profiler.stop()


@pytest.mark.parametrize(
    ("begin", "end", "said"),
    [
        (2, 12, "another profiler runs in this process, so this one waits"),
        (6, 12, "the profiled window was given up"),
        (12, 15, ""),
    ],
    ids=["before ours", "in ours", "after ours"],
)
@pytest.mark.parametrize("ours_first", [True, False])
def test_a_profiler_of_the_users_own_goes_on(tmp_path, capfd, begin, end, said, ours_first):
    own, callback = OwnProfiler(begin, end), adapter(tmp_path, profile_after=5)
    trainer, _ = make(tmp_path, *((callback, own) if ours_first else (own, callback)))
    trainer.train()
    assert any(average.key == "aten::addmm" for average in own.profiler.key_averages())
    err = capfd.readouterr().err
    record = callback.record
    assert (record.state, record.observed.num_steps) == ("finished", 21)
    trial = record.trials[0]
    if said:
        assert said in err
        assert "profile=False" in err
        assert trial.profile is None
        assert "profiler" in trial.unavailable["profile"]
    else:
        assert trial.profile.operators_pct > 0


def test_noise_scale(tmp_path):
    callback = adapter(tmp_path, profile=False, quiet=True, noise_scale=True, noise_every=1)
    make(tmp_path, callback)[0].train()
    noise = callback.record.observed.noise_scale
    assert (noise.source, noise.small_batch, noise.large_batch) == ("accumulation", 8, 16)
