"""Lightning on two CPU processes; its default launcher starts the second as a program."""

import sys

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))

    def training_step(self, batch, _):
        inputs, targets = batch
        return nn.functional.mse_loss(self.net(inputs), targets)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=2e-3)


def main():
    lightning.seed_everything(5)
    x = torch.randn(6000, 16)
    train = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=20, shuffle=True)
    trainer = lightning.Trainer(
        max_epochs=3, accelerator="cpu", devices=2, strategy=sys.argv[1],
        enable_progress_bar=False, logger=False, enable_checkpointing=False,
    )
    trainer.fit(Regression(), train)


if __name__ == "__main__":
    main()
