"""In the style of Accelerate's nlp_example.py: a config dictionary, a main process that reads."""

import argparse
import random

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from torch import nn
from torch.optim import AdamW
from torch.utils.data import DataLoader

MAX_GPU_BATCH_SIZE = 16
EVAL_BATCH_SIZE = 32


def get_dataloaders(accelerator, batch_size=16):
    rng = random.Random(0)
    samples = [
        (torch.tensor([rng.randint(1, 99) for _ in range(rng.randint(5, 60))]), rng.randint(0, 1))
        for _ in range(2400)
    ]

    def collate_fn(examples):
        ids = nn.utils.rnn.pad_sequence([sample for sample, _ in examples], batch_first=True)
        return {
            "input_ids": ids,
            "attention_mask": (ids > 0).long(),
            "labels": torch.tensor([label for _, label in examples]),
        }

    train_dataloader = DataLoader(
        samples[:2000], shuffle=True, collate_fn=collate_fn, batch_size=batch_size, drop_last=True
    )
    eval_dataloader = DataLoader(
        samples[2000:], shuffle=False, collate_fn=collate_fn, batch_size=EVAL_BATCH_SIZE
    )
    return train_dataloader, eval_dataloader


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(100, 64, padding_idx=0)
        layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(64, 2)

    def forward(self, input_ids, attention_mask, labels):
        hidden = self.encoder(self.embed(input_ids), src_key_padding_mask=attention_mask == 0)
        logits = self.head(hidden[:, 0])
        return nn.functional.cross_entropy(logits, labels), logits


def training_function(config, args):
    accelerator = Accelerator(
        cpu=args.cpu,
        mixed_precision=args.mixed_precision,
        dataloader_config=DataLoaderConfiguration(dispatch_batches=args.dispatch_batches),
    )
    lr, num_epochs, batch_size = config["lr"], int(config["num_epochs"]), int(config["batch_size"])
    gradient_accumulation_steps = 1
    if batch_size > MAX_GPU_BATCH_SIZE:
        gradient_accumulation_steps = batch_size // MAX_GPU_BATCH_SIZE
        batch_size = MAX_GPU_BATCH_SIZE
    train_dataloader, eval_dataloader = get_dataloaders(accelerator, batch_size)
    model = Classifier()
    optimizer = AdamW(params=model.parameters(), lr=lr)
    model, optimizer, train_dataloader, eval_dataloader = accelerator.prepare(
        model, optimizer, train_dataloader, eval_dataloader
    )
    for epoch in range(num_epochs):
        model.train()
        for step, batch in enumerate(train_dataloader):
            loss, _ = model(**batch)
            accelerator.backward(loss / gradient_accumulation_steps)
            if step % gradient_accumulation_steps == 0:
                optimizer.step()
                optimizer.zero_grad()
        model.eval()
        hits = 0
        for batch in eval_dataloader:
            with torch.no_grad():
                _, logits = model(**batch)
            predictions, references = accelerator.gather_for_metrics(
                (logits.argmax(-1), batch["labels"])
            )
            hits += (predictions == references).sum().item()
        accelerator.print(f"epoch {epoch}: {hits / 400:.3f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mixed_precision", default="bf16", choices=["no", "fp16", "bf16"])
    parser.add_argument("--cpu", action="store_true", default=not torch.cuda.is_available())
    parser.add_argument("--dispatch_batches", action="store_true", default=None)
    args = parser.parse_args()
    config = {"lr": 2e-5, "num_epochs": 30, "seed": 42, "batch_size": 16}
    training_function(config, args)


if __name__ == "__main__":
    main()
