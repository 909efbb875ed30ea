"""Train a narrow ResNet-18 (CIFAR variant) on CIFAR-10, or on synthetic files of the same format.

    python resnet18_cifar10.py                                  # synthetic data, made on the spot
    python resnet18_cifar10.py --data ~/cifar-10-batches-bin    # the real binary version
    python resnet18_cifar10.py --data ... --width 64 --amp      # the full network, for a GPU

The default width of 16 channels instead of 64 makes the network 16 times smaller and feasible on
a CPU; it is not the ResNet-18 of the papers. Accuracy on synthetic data means nothing.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

RECORD = 1 + 3 * 32 * 32  # a label byte, then the red, green and blue plane, row by row
MEAN = torch.tensor([0.491, 0.482, 0.447]).view(3, 1, 1)
STD = torch.tensor([0.247, 0.243, 0.262]).view(3, 1, 1)


def write_synthetic(folder, files=5, per_file=2000):
    """Write files in CIFAR-10's format: a faint colour pattern for each class under noise."""
    rng = np.random.default_rng(0)
    coarse = rng.uniform(112, 144, (10, 3, 4, 4))
    patterns = coarse.repeat(8, axis=2).repeat(8, axis=3).reshape(10, -1)
    for number in range(1, files + 1):
        labels = rng.integers(0, 10, per_file)
        noise = rng.standard_normal((per_file, RECORD - 1), dtype=np.float32) * 60
        records = np.empty((per_file, RECORD), np.uint8)
        records[:, 0] = labels
        records[:, 1:] = (patterns[labels] + noise).clip(0, 255)
        records.tofile(folder / f"data_batch_{number}.bin")


class Cifar10(Dataset):
    """All data_batch_*.bin files of a folder, with random crops and flips."""

    def __init__(self, folder):
        paths = sorted(Path(folder).expanduser().glob("data_batch_*.bin"))
        if not paths:
            raise SystemExit(f"no data_batch_*.bin in {folder}: is it the binary version?")
        raw = np.concatenate([np.fromfile(path, np.uint8) for path in paths])
        records = torch.from_numpy(raw.reshape(-1, RECORD))
        self.labels = records[:, 0].long()
        self.images = records[:, 1:].reshape(-1, 3, 32, 32)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = (self.images[index] / 255 - MEAN) / STD
        padded = nn.functional.pad(image, (4, 4, 4, 4))
        top, left, flip = torch.randint(0, 9, (3,)).tolist()
        image = padded[:, top : top + 32, left : left + 32]
        return (image.flip(2) if flip % 2 else image), self.labels[index]


class BasicBlock(nn.Module):
    def __init__(self, channels_in, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.shortcut = nn.Identity()
        if stride != 1 or channels_in != channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x):
        y = self.bn1(self.conv1(x)).relu()
        return (self.bn2(self.conv2(y)) + self.shortcut(x)).relu()


class ResNet18(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()
        )
        stages, channels_in = [], width
        for stage in range(4):
            channels = width * 2**stage
            stages.append(BasicBlock(channels_in, channels, stride=1 if stage == 0 else 2))
            stages.append(BasicBlock(channels, channels, stride=1))
            channels_in = channels
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(channels_in, 10)

    def forward(self, x):
        return self.head(self.stages(self.stem(x)).mean((2, 3)))


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with CIFAR-10's data_batch_*.bin")
    parser.add_argument("--synthetic", type=Path, help="keep the synthetic files in this folder")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument(
        "--width", type=int, default=16, help="channels of the first stage; the original has 64"
    )
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--amp", action="store_true", help="bfloat16 autocast")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, ...")
    return parser.parse_args()


def load_data(args):
    if args.data is not None:
        return Cifar10(args.data)
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.synthetic or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        write_synthetic(folder)
        kept = f"kept in {folder}" if args.synthetic else "not kept"
        print(f"SYNTHETIC data in CIFAR-10's format, {kept}")
        return Cifar10(folder)


def main():
    args = parse_args()
    torch.manual_seed(0)
    device = args.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(device)

    dataset = load_data(args)
    loader = DataLoader(
        dataset,
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=args.workers,
        pin_memory=device.type == "cuda",
        persistent_workers=args.workers > 0,
    )
    model = ResNet18(args.width).to(device)
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, len(loader) * args.epochs)
    print(f"{len(dataset)} images, width {args.width}, {len(loader)} steps an epoch on {device}")

    start = time.perf_counter()
    for epoch in range(1, args.epochs + 1):
        model.train()
        for step, (images, labels) in enumerate(loader, 1):
            images = images.to(device, non_blocking=True)
            labels = labels.to(device, non_blocking=True)
            with torch.autocast(device.type, torch.bfloat16, enabled=args.amp):
                loss = cross_entropy(model(images), labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            scheduler.step()
            if step % 50 == 0 or step == len(loader):
                seconds = time.perf_counter() - start
                print(
                    f"epoch {epoch} step {step} loss {loss.item():.3f} {seconds:.1f} s", flush=True
                )


if __name__ == "__main__":
    main()
