"""The profiling callback in Lightning.

python examples/callback_lightning.py
batchadvisor advise runs/callback_lightning
"""

import argparse

import lightning
import torch
from batchadvisor.callback import LightningCallback
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--logdir", default="runs/callback_lightning")
parser.add_argument("--epochs", type=int, default=3)
args = parser.parse_args()


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 2))

    def training_step(self, batch, _):
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


lightning.seed_everything(0)
x = torch.randn(5000, 64)
y = (x[:, 0] * x[:, 1] > 0).long()
loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
trainer = lightning.Trainer(
    max_epochs=args.epochs,
    callbacks=[LightningCallback(logdir=args.logdir)],
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
)
trainer.fit(Classifier(), loader)
