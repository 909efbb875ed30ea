"""In the style of Ultralytics: settings from a YAML file, a loader without end, a nominal batch."""

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
import yaml
from torch import nn
from torch.utils.data import DataLoader, Dataset

DEFAULT_CFG = Path(__file__).with_name("yolo_train.yaml")


def get_cfg(overrides=None):
    cfg = yaml.safe_load(DEFAULT_CFG.read_text())
    return SimpleNamespace(**{**cfg, **(overrides or {})})


class _RepeatSampler:
    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self):
        while True:
            yield from iter(self.sampler)


class InfiniteDataLoader(DataLoader):
    """Keeps its iterator over the epochs."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        object.__setattr__(self, "batch_sampler", _RepeatSampler(self.batch_sampler))
        self.iterator = super().__iter__()

    def __len__(self):
        return len(self.batch_sampler.sampler)

    def __iter__(self):
        for _ in range(len(self)):
            yield next(self.iterator)


class YOLODataset(Dataset):
    def __init__(self, count, imgsz):
        self.count, self.imgsz = count, imgsz

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        boxes = index % 5
        return {
            "img": torch.randint(0, 255, (3, self.imgsz, self.imgsz), dtype=torch.uint8),
            "cls": torch.zeros(boxes, 1),
            "bboxes": torch.rand(boxes, 4),
            "batch_idx": torch.zeros(boxes),
            "im_file": f"{index}.jpg",
        }

    @staticmethod
    def collate_fn(batch):
        """One tensor of pictures; the boxes of all of them in one list, with their picture's number."""
        new = {key: [sample[key] for sample in batch] for key in batch[0]}
        new["img"] = torch.stack(new["img"])
        new["batch_idx"] = torch.cat([each + row for row, each in enumerate(new["batch_idx"])])
        for key in ("cls", "bboxes"):
            new[key] = torch.cat(new[key])
        return new


def build_dataloader(dataset, batch, workers, shuffle=True):
    batch = min(batch, len(dataset))
    return InfiniteDataLoader(
        dataset=dataset,
        batch_size=batch,
        shuffle=shuffle,
        num_workers=workers,
        collate_fn=dataset.collate_fn,
    )


class DetectionModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.SiLU(), nn.Conv2d(8, 16, 3, 2), nn.SiLU()
        )
        self.head = nn.Conv2d(16, 5, 1)

    def loss(self, batch):
        maps = self.head(self.model(batch["img"]))
        boxes = maps.mean((2, 3))[batch["batch_idx"].long()]
        loss = nn.functional.l1_loss(boxes[:, :4], batch["bboxes"])
        return (loss + maps[:, 4].sigmoid().mean()) * len(batch["img"])


class Trainer:
    def __init__(self, overrides=None):
        self.args = get_cfg(overrides)
        self.batch_size = self.args.batch
        self.model = DetectionModel()
        self.train_loader = build_dataloader(
            YOLODataset(1600, self.args.imgsz), self.batch_size, self.args.workers
        )
        self.accumulate = max(round(self.args.nbs / self.batch_size), 1)
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=self.args.lr0, momentum=0.9, nesterov=True
        )
        self.ema = torch.optim.swa_utils.AveragedModel(self.model)

    def train(self):
        nb = len(self.train_loader)
        nw = max(round(self.args.warmup_epochs * nb), 10)
        last_opt_step = -1
        self.optimizer.zero_grad()
        for epoch in range(self.args.epochs):
            self.model.train()
            for i, batch in enumerate(self.train_loader):
                ni = i + nb * epoch
                if ni <= nw:
                    goal = self.args.nbs / self.batch_size
                    self.accumulate = max(1, int(np.interp(ni, [0, nw], [1, goal]).round()))
                    for group in self.optimizer.param_groups:
                        group["lr"] = np.interp(ni, [0, nw], [0.0, self.args.lr0])
                batch["img"] = batch["img"].float() / 255
                loss = self.model.loss(batch)
                loss.backward()
                if ni - last_opt_step >= self.accumulate:
                    nn.utils.clip_grad_norm_(self.model.parameters(), max_norm=10.0)
                    self.optimizer.step()
                    self.optimizer.zero_grad()
                    self.ema.update_parameters(self.model)
                    last_opt_step = ni
            decay = (1 + math.cos(math.pi * epoch / self.args.epochs)) / 2
            print(epoch, loss.item(), decay)


if __name__ == "__main__":
    Trainer({"imgsz": 64, "epochs": 100}).train()
