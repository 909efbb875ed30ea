"""The callback in real fits of Lightning."""

from __future__ import annotations

import pytest
import torch
from batchadvisor.session.recording.store import read_record
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from ..needs import framework
from .watched import assert_failed, assert_found_out, assert_same_to_the_bit

lightning = framework("lightning")
pytestmark = [
    pytest.mark.frameworks,
    # Lightning's own advice and deprecations are no matter of ours.
    pytest.mark.filterwarnings("ignore:::lightning"),
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers.*"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec.*"),
]

NUM_SAMPLES, BATCH, ACCUMULATE, EPOCHS = 100, 8, 2, 3


class Net(lightning.LightningModule):
    """A small classifier that keeps its losses, and fails where it is told to."""

    def __init__(self, fail_at=None):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(10, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))
        self.losses = []
        self.fail_at = fail_at
        self.num_validated = 0

    def training_step(self, batch, batch_idx):
        loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.losses.append(loss.item())
        if self.fail_at is not None and len(self.losses) == self.fail_at[0]:
            raise self.fail_at[1]
        return loss

    def validation_step(self, batch, batch_idx):
        self.num_validated += len(batch[0])

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class Counting(lightning.Callback):
    """A callback of the user's own."""

    def __init__(self):
        self.steps = 0

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.steps += 1


def data(num=NUM_SAMPLES):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(num, 10, generator=generator)
    return TensorDataset(x, (x[:, 0] > 0).long())


def fit(folder, *callbacks, fail_at=None, validate=False, **options):
    lightning.seed_everything(1, verbose=False)
    net = Net(fail_at)
    trainer = lightning.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        devices=1,
        accumulate_grad_batches=ACCUMULATE,
        callbacks=list(callbacks),
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        **options,
    )
    loaders = [DataLoader(data(), batch_size=BATCH, shuffle=True)]
    if validate:
        loaders.append(DataLoader(data(40), batch_size=BATCH))
    trainer.fit(net, *loaders)
    return net, trainer


def adapter(folder, **options):
    from batchadvisor.callback import LightningCallback

    return LightningCallback(folder / "log", **options)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lightning")
    plain, _ = fit(folder)
    own, callback = Counting(), adapter(folder, profile_after=4)
    net, trainer = fit(folder, own, callback)
    return plain, net, trainer, own, read_record(folder / "log")


class TestFit:
    def test_the_training_is_the_same_to_the_bit(self, run):
        assert_same_to_the_bit(*run[:2])

    def test_it_counts_what_the_loop_did(self, run):
        _, net, trainer, own, record = run
        observed = record.observed
        assert record.state == "finished"
        assert observed.framework == "lightning"
        assert observed.num_steps == trainer.global_step == 21
        assert observed.num_micro_batches == own.steps == len(net.losses) == 39
        assert observed.num_samples == NUM_SAMPLES * EPOCHS
        assert {size.batch_size: size.num_micro_batches for size in observed.sizes} == {8: 36, 4: 3}
        assert observed.num_epochs == EPOCHS

    def test_what_it_found_out(self, run):
        assert_found_out(
            run[4], batch_size=BATCH, accumulate=ACCUMULATE, num_samples=NUM_SAMPLES, tail=4
        )


def test_an_epoch_that_is_cut_short_has_no_short_batch(tmp_path):
    """The 4 samples at the end of the data set are never reached."""
    callback = adapter(tmp_path, profile=False, quiet=True)
    fit(tmp_path, callback, limit_train_batches=5)
    assert callback.record.discovery.primary.num_samples == 5 * BATCH
    assert callback.record.observed.num_samples == 5 * BATCH * EPOCHS


def test_validation_belongs_to_no_step(tmp_path):
    callback = adapter(tmp_path, profile=False, quiet=True)
    net, trainer = fit(tmp_path, callback, validate=True, val_check_interval=5)
    assert net.num_validated > 0
    observed = callback.record.observed
    assert observed.num_steps == trainer.global_step
    assert observed.num_samples == NUM_SAMPLES * EPOCHS


def test_an_exception_passes_unchanged(tmp_path):
    error = ValueError("mine")
    callback = adapter(tmp_path, quiet=True)
    with pytest.raises(ValueError, match="mine") as caught:
        fit(tmp_path, callback, fail_at=(20, error))
    assert caught.value is error
    # The 20th micro-batch is the 7th of the second epoch: 7 steps and 3 more.
    assert_failed(tmp_path / "log", "ValueError: mine", num_steps=10)


def test_out_of_memory(tmp_path):
    error = torch.OutOfMemoryError("CUDA out of memory.")
    callback = adapter(tmp_path, quiet=True, profile=False)
    with pytest.raises(torch.OutOfMemoryError) as caught:
        fit(tmp_path, callback, fail_at=(9, error))
    assert caught.value is error
    assert callback.record.trials[-1].outcome == "out_of_memory"


@pytest.mark.parametrize("first", [1, 2, 4])
def test_lightnings_own_profiler_goes_on(first, tmp_path, capfd, caplog):
    """Its window lies in the first micro-batches; ours begins before, in and after it."""
    callback = adapter(tmp_path, profile_after=first)
    with caplog.at_level("INFO"):
        fit(tmp_path, callback, profiler="pytorch")
    assert callback.record.observed.num_steps == 21
    assert callback.record.state == "finished"
    trial = callback.record.trials[0]
    err = capfd.readouterr().err
    if trial.profile is None:
        assert "profiler" in trial.unavailable["profile"]
        assert "profile=False" in err
    else:
        assert trial.profile.operators_pct > 0
    assert "run_training_batch" in caplog.text


def test_noise_scale(tmp_path):
    callback = adapter(tmp_path, profile=False, quiet=True, noise_scale=True, noise_every=1)
    fit(tmp_path, callback)
    noise = callback.record.observed.noise_scale
    assert noise.source == "accumulation"
    assert (noise.small_batch, noise.large_batch) == (8, 16)
