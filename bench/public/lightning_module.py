"""In the style of Lightning's examples: a LightningModule, a DataModule, validation, accumulation."""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


class DataModule(L.LightningDataModule):
    def __init__(self, batch_size: int = 32):
        super().__init__()
        self.batch_size = batch_size

    def setup(self, stage):
        dataset = TensorDataset(torch.randn(6000, 784), torch.randint(0, 10, (6000,)))
        self.train_set, self.val_set = random_split(dataset, [5500, 500])

    def train_dataloader(self):
        return DataLoader(self.train_set, batch_size=self.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, batch_size=self.batch_size)


class LitClassifier(L.LightningModule):
    def __init__(self, hidden_dim=128, learning_rate=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(784, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, 10))

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_loss", nn.functional.cross_entropy(self.net(x), y), prog_bar=True)

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=self.hparams.learning_rate)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)
        return [optimizer], [schedule]


if __name__ == "__main__":
    L.seed_everything(42)
    trainer = L.Trainer(
        max_epochs=50,
        accelerator="cpu",
        accumulate_grad_batches=2,
        gradient_clip_val=1.0,
        enable_progress_bar=False,
        default_root_dir="lightning-out",
    )
    trainer.fit(LitClassifier(), datamodule=DataModule())
