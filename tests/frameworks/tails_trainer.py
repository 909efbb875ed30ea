"""Runs Hugging Face's Trainer: `python tails_trainer.py RANK FOLDER CASE...`."""

import json
import os
import sys
import warnings
from pathlib import Path

import torch
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments

warnings.simplefilter("ignore")


class Model(nn.Module):
    """One weight; the gradient of its loss is the mean of the inputs."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.seen = []

    def forward(self, x, labels=None):
        del labels
        self.seen.append(x.tolist())
        output = x * self.weight
        return {"loss": output.mean(), "logits": output}


class Gradients(TrainerCallback):
    """Keeps the gradient of each optimizer step."""

    def __init__(self):
        self.found = []

    def on_pre_optimizer_step(self, args, state, control, model=None, **_):
        del args, state, control
        self.found.append(next(model.parameters()).grad.item())


def trainer_of(folder, num_samples, *, ones=False, accumulate=1, drop=False, kind=Trainer):
    data = [
        {"x": 1.0 if ones else float(index), "labels": float(index)} for index in range(num_samples)
    ]
    gradients = Gradients()
    arguments = TrainingArguments(
        output_dir=str(folder / "out"),
        use_cpu=True,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        gradient_accumulation_steps=accumulate,
        dataloader_drop_last=drop,
        num_train_epochs=1,
        learning_rate=0.0,
        max_grad_norm=0.0,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )
    model = Model()
    trainer = kind(
        model=model, args=arguments, train_dataset=data, eval_dataset=data, callbacks=[gradients]
    )
    return trainer, model, gradients


def predictions(folder):
    counts = {}
    for name, drop in (("all", False), ("drop", True)):
        trainer, _, _ = trainer_of(folder, 9, drop=drop)
        counts[name] = len(trainer.predict(trainer.eval_dataset).predictions)
    return counts


def accumulate(folder):
    """Gradients of 6 batches, accumulated over 4."""
    world = int(os.environ["WORLD_SIZE"])
    trainer, _, gradients = trainer_of(folder, 24 * world, ones=True, accumulate=4)
    trainer.train()
    return gradients.found


def batches(folder):
    """The samples of this rank in an epoch of 9."""
    trainer, model, _ = trainer_of(folder, 9)
    trainer.train()
    return model.seen


LOADERS = [
    (samples, size, drop)
    for samples in (1, 2, 3, 5, 7, 8, 9, 13, 16, 17, 23, 31)
    for size in (1, 2, 3, 4, 5, 7, 8, 12, 16)
    for drop in (False, True)
]


def loaders(folder):
    """The batches of this rank in the training loaders of many pipelines."""
    trainer, _, _ = trainer_of(folder, 1)
    by_pipeline = []
    for samples, size, drop in LOADERS:
        trainer.train_dataset = [{"x": float(index), "labels": 0.0} for index in range(samples)]
        trainer._train_batch_size = size
        trainer.args.dataloader_drop_last = drop
        by_pipeline.append([batch["x"].tolist() for batch in trainer.get_train_dataloader()])
    return by_pipeline


def page_code(folder):
    """Predictions, and samples of a training epoch of 9, with the class of the page's code."""
    names = {"Trainer": Trainer}
    exec(os.environ["PAGE_CODE"], names)
    trainer, model, _ = trainer_of(folder, 9, kind=names["DropLast"])
    trainer.train()
    trained = [len(batch) for batch in model.seen]
    return {
        "trained": trained,
        "predicted": len(trainer.predict(trainer.eval_dataset).predictions),
    }


CASES = {case.__name__: case for case in (predictions, accumulate, batches, loaders, page_code)}


def main():
    rank, folder, names = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
    torch.set_num_threads(1)
    seen = {name: CASES[name](folder) for name in names}
    (folder / f"{rank}.json").write_text(json.dumps(seen))
    os._exit(0)


if __name__ == "__main__":
    main()
