"""Runs in two processes of Lightning: `python tails_lightning.py RANK FOLDER CASE...`."""

import json
import logging
import os
import sys
import warnings
from pathlib import Path

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader

warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Seen(lightning.LightningModule):
    """Keeps the samples and gradients that it sees."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 1, bias=False)
        self.trained, self.validated, self.gradients = [], [], []

    def training_step(self, batch, _):
        self.trained.append(batch[:, 0].tolist())
        return (self.layer(batch) / self.layer.weight.detach()).mean()

    def on_before_optimizer_step(self, optimizer):
        del optimizer
        self.gradients.append((self.layer.weight.grad * self.layer.weight).item())

    def validation_step(self, batch, _):
        self.validated.append(batch[:, 0].tolist())
        self.log("mean", batch.mean(), sync_dist=True)

    def predict_step(self, batch, _):
        return batch[:, 0]

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.0)


def trainer_of(**options):
    usual = {
        "accelerator": "cpu",
        "devices": 2,
        "strategy": "ddp",
        "max_epochs": 1,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    return lightning.Trainer(**{**usual, **options})


def loader(num_samples=9, ones=False):
    data = torch.ones(num_samples) if ones else torch.arange(float(num_samples))
    return DataLoader(data[:, None], 4)


def fit():
    model = Seen()
    trainer_of(num_sanity_val_steps=0).fit(model, loader(), loader())
    return {"trained": model.trained}


def validate():
    model = Seen()
    (logged,) = trainer_of().validate(model, loader(), verbose=False)
    return {"validated": model.validated, "mean": logged["mean"]}


def predict():
    return [batch.tolist() for batch in trainer_of().predict(Seen(), loader())]


def predict_drop():
    """Predictions of a loader that drops its last batch."""
    dropping = DataLoader(torch.arange(9.0)[:, None], 4, drop_last=True)
    return [batch.tolist() for batch in trainer_of().predict(Seen(), dropping)]


def plain():
    model = Seen()
    trainer_of(use_distributed_sampler=False).fit(model, loader())
    return model.trained


def accumulate():
    """Gradients of 6 batches a rank, accumulated over 4."""
    model = Seen()
    trainer_of(accumulate_grad_batches=4).fit(model, loader(48, ones=True))
    return model.gradients


class Alone:
    """`L` in the code of a page: quiet trainers on the CPU."""

    @staticmethod
    def Trainer(**options):  # noqa: N802  as Lightning names it
        return trainer_of(**{"strategy": "auto", **options})


def page_validate():
    """What one device validates by the page's code: 9 samples."""
    model = Seen()
    exec(os.environ["PAGE_VALIDATE"], {"L": Alone, "model": model, "loader": loader()})
    return model.validated


class Stream(torch.utils.data.IterableDataset):
    """Ones, without a length."""

    def __iter__(self):
        return iter(torch.ones(24)[:, None])


def page_accumulate():
    """Gradients of 6 batches, accumulated over 4, with the hook of the page's code.

    Of a data set, then of a stream.
    """
    names = {}
    exec(os.environ["PAGE_ACCUMULATE"], names)

    class Hooked(Seen):
        def on_before_optimizer_step(self, optimizer):
            names["on_before_optimizer_step"](self, optimizer)
            super().on_before_optimizer_step(optimizer)

    seen = []
    for batches in (loader(24, ones=True), DataLoader(Stream(), 4)):
        model = Hooked()
        trainer = trainer_of(devices=1, strategy="auto", accumulate_grad_batches=4)
        trainer.fit(model, batches)
        seen.append(model.gradients)
    return seen


CASES = {
    case.__name__: case
    for case in (
        fit, validate, predict, predict_drop, plain, accumulate, page_validate, page_accumulate
    )
}  # fmt: skip


def main():
    rank, folder, names = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
    torch.set_num_threads(1)
    seen = {name: CASES[name]() for name in names}
    (folder / f"{rank}.json").write_text(json.dumps(seen))
    os._exit(0)


if __name__ == "__main__":
    main()
