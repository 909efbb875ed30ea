"""The profiling callback in the Hugging Face Trainer.

python examples/callback_huggingface.py
batchadvisor advise runs/callback_huggingface
"""

import argparse
import tempfile

import torch
from batchadvisor.callback import HuggingFaceCallback
from torch import nn
from transformers import Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--logdir", default="runs/callback_huggingface")
parser.add_argument("--epochs", type=int, default=3)
args = parser.parse_args()


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 2))

    def forward(self, x, labels):
        logits = self.net(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


torch.manual_seed(0)
data = [{"x": row, "labels": int(row[0] * row[1] > 0)} for row in torch.randn(2000, 64)]
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=16,
        gradient_accumulation_steps=2,
        num_train_epochs=args.epochs,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=Classifier(),
        args=arguments,
        train_dataset=data,
        callbacks=[HuggingFaceCallback(logdir=args.logdir)],
    )
    trainer.train()
