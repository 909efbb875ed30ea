"""A stream of texts without a length, trained on under the framework that is named.

Each process is printed, and each batch that reaches the model: its samples and its longest text.
"""

import sys

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, IterableDataset

NUM_STEPS = 400
LONGEST = 61
"""Of a text; one of a thousand is so long."""


class Texts(IterableDataset):
    def __iter__(self):
        for i in range(4000):
            length = LONGEST if i % 1000 == 700 else 5 + i * 7 % 30
            yield {"input_ids": torch.full((length,), 1 + i % 19), "labels": torch.tensor(i % 2)}


def collate(samples):
    texts = [sample["input_ids"] for sample in samples]
    labels = torch.stack([sample["labels"] for sample in samples])
    return {"input_ids": pad_sequence(texts, batch_first=True), "labels": labels}


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        self.head = nn.Linear(16, 2)

    def forward(self, input_ids, labels):
        print("batch", *input_ids.shape, flush=True)
        logits = self.head(self.embed(input_ids).sum(1))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def accelerate(*options):
    """In shards, or dispatched by the first process: what Accelerate does with streams."""
    from accelerate import Accelerator, DataLoaderConfiguration

    config = DataLoaderConfiguration(dispatch_batches="sharded" not in options)
    accelerator = Accelerator(cpu=True, dataloader_config=config)
    loader = DataLoader(Texts(), batch_size=16, collate_fn=collate)
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        accelerator.backward(model(**batch)["loss"])
        optimizer.step()
        optimizer.zero_grad()


def trainer():
    """Accumulation over two batches, and workers."""
    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments(
        output_dir="hf-out",
        per_device_train_batch_size=16,
        gradient_accumulation_steps=2,
        dataloader_num_workers=1,
        max_steps=NUM_STEPS,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    trains = Trainer(
        model=Classifier(), args=arguments, train_dataset=Texts(), data_collator=collate
    )
    trains.train()


def lightning():
    """It takes one batch ahead of a loader without a length."""
    from lightning import LightningModule, Trainer

    class Module(LightningModule):
        def __init__(self):
            super().__init__()
            self.net = Classifier()

        def training_step(self, batch, _):
            return self.net(**batch)["loss"]

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    fits = Trainer(max_steps=NUM_STEPS, accelerator="cpu", enable_model_summary=False, **quiet)
    fits.fit(Module(), DataLoader(Texts(), batch_size=16, collate_fn=collate))


if __name__ == "__main__":
    print("process", flush=True)
    torch.manual_seed(0)
    {"accelerate": accelerate, "trainer": trainer, "lightning": lightning}[sys.argv[1]](
        *sys.argv[2:]
    )
