"""A Trainer class with a config, parameter groups and a schedule. It leaves traces: a run folder, a
log file, a checkpoint after every epoch and at the end, `finally.txt` from a finally clause and
`atexit.txt` from an exit handler. The folder is `runs/` under the working directory, or --out."""

import argparse
import atexit
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    out: str = "runs"
    batch_size: int = 16
    epochs: int = 4
    lr: float = 3e-3
    weight_decay: float = 0.05
    warmup: int = 20
    log_every: int = 50
    seed: int = 13


class Spirals(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.arm = torch.randint(0, 3, (n,), generator=g)
        r = torch.rand(n, generator=g)
        angle = 4 * r + self.arm * 2.1 + 0.15 * torch.randn(n, generator=g)
        self.points = torch.stack([r * angle.sin(), r * angle.cos()], dim=1)

    def __len__(self):
        return len(self.arm)

    def __getitem__(self, i):
        return self.points[i], self.arm[i]


class Net(nn.Module):
    def __init__(self, width=48, classes=3):
        super().__init__()
        self.inp = nn.Linear(2, width)
        self.norm = nn.LayerNorm(width)
        self.hidden = nn.Linear(width, width)
        self.out = nn.Linear(width, classes)

    def forward(self, x):
        x = self.inp(x).relu()
        x = x + self.hidden(self.norm(x)).relu()
        return self.out(x)


class Trainer:
    def __init__(self, config):
        self.config = config
        torch.manual_seed(config.seed)
        self.folder = Path(config.out)
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "config.json").write_text(json.dumps(asdict(config), indent=2))
        self.log_file = open(self.folder / "train.log", "w")
        self.train_loader = DataLoader(
            Spirals(2400, seed=1), batch_size=config.batch_size, shuffle=True
        )
        self.val_loader = DataLoader(Spirals(300, seed=2), batch_size=100)
        self.model = Net()
        self.optimizer = self.build_optimizer()
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: min(1.0, (step + 1) / config.warmup)
        )
        self.step = 0

    def build_optimizer(self):
        decay = [p for p in self.model.parameters() if p.ndim >= 2]
        no_decay = [p for p in self.model.parameters() if p.ndim < 2]
        groups = [
            {"params": decay, "weight_decay": self.config.weight_decay},
            {"params": no_decay, "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=self.config.lr)

    def log(self, message):
        print(message)
        print(message, file=self.log_file, flush=True)

    def save(self, name):
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
        }
        torch.save(state, self.folder / name)

    def train_step(self, points, labels):
        loss = nn.functional.cross_entropy(self.model(points), labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        self.step += 1
        return loss.item()

    @torch.inference_mode()
    def evaluate(self):
        self.model.eval()
        hits = sum(
            (self.model(points).argmax(1) == labels).sum().item()
            for points, labels in self.val_loader
        )
        self.model.train()
        return hits / len(self.val_loader.dataset)

    def fit(self):
        try:
            for epoch in range(self.config.epochs):
                for points, labels in self.train_loader:
                    loss = self.train_step(points, labels)
                    if self.step % self.config.log_every == 0:
                        self.log(f"step {self.step}: loss {loss:.4f}")
                self.log(f"epoch {epoch}: accuracy {self.evaluate():.3f}")
                self.save(f"epoch{epoch}.pt")
        finally:
            (self.folder / "finally.txt").write_text("finally ran\n")
            self.log_file.close()
        self.save("final.pt")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default=Config.out)
    parser.add_argument("--batch-size", type=int, default=Config.batch_size)
    parser.add_argument("--epochs", type=int, default=Config.epochs)
    args = parser.parse_args()
    trainer = Trainer(Config(out=args.out, batch_size=args.batch_size, epochs=args.epochs))
    atexit.register((trainer.folder / "atexit.txt").write_text, "atexit ran\n")
    trainer.fit()


if __name__ == "__main__":
    main()
