"""The Hugging Face Trainer on a small model of its own, with accumulation and a schedule.

Texts of like length are put together (`group_by_length`), and padded with an attention mask.
"""

import dataclasses
import random

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from transformers import Trainer, TrainingArguments

# Renamed in transformers 5.
GROUPED = {"group_by_length": True}
if "group_by_length" not in {field.name for field in dataclasses.fields(TrainingArguments)}:
    GROUPED = {"train_sampling_strategy": "group_by_length"}


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 16, padding_idx=0)
        self.head = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, input_ids, attention_mask, labels):
        logits = self.head((self.embed(input_ids) * attention_mask[..., None]).sum(1))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class Texts(torch.utils.data.Dataset):
    def __init__(self, n):
        rng = random.Random(3)
        self.texts = [[rng.randrange(1, 20) for _ in range(rng.randint(4, 60))] for _ in range(n)]

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, i):
        return {"input_ids": self.texts[i], "labels": i % 2}


def collate(samples):
    texts = [torch.tensor(sample["input_ids"]) for sample in samples]
    ids = pad_sequence(texts, batch_first=True)
    labels = torch.tensor([sample["labels"] for sample in samples])
    return {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": labels}


def main():
    arguments = TrainingArguments(
        output_dir="hf-out",
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        num_train_epochs=3,
        learning_rate=1e-3,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        **GROUPED,
    )
    model, texts = Classifier(), Texts(2000)
    Trainer(model=model, args=arguments, train_dataset=texts, data_collator=collate).train()


if __name__ == "__main__":
    main()
