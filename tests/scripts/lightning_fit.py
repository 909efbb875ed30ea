"""Lightning: a module, a validation loader, Trainer.fit; checkpoints and logs are left on."""

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))

    def training_step(self, batch, _):
        inputs, targets = batch
        return nn.functional.mse_loss(self.net(inputs), targets)

    def validation_step(self, batch, _):
        inputs, targets = batch
        self.log("val", nn.functional.mse_loss(self.net(inputs), targets))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=2e-3)


def main():
    lightning.seed_everything(5)
    x = torch.randn(2600, 16)
    data = TensorDataset(x, x.sum(1, keepdim=True))
    train = DataLoader(data, batch_size=20, shuffle=True)
    val = DataLoader(TensorDataset(*data[:100]), batch_size=50)
    often = ModelCheckpoint(dirpath="checkpoints", every_n_train_steps=5, save_last="link")
    trainer = lightning.Trainer(
        max_epochs=3, accelerator="cpu", enable_progress_bar=False, callbacks=[often]
    )
    trainer.fit(Regression(), train, val)


if __name__ == "__main__":
    main()
