"""In the style of timm's train.py: options over a YAML file, a prefetching loader, Mixup, an EMA."""

import argparse
import os
from contextlib import nullcontext

import torch
import yaml
from torch import nn
from torch.utils.data import DataLoader, Dataset

config_parser = argparse.ArgumentParser(add_help=False)
config_parser.add_argument("-c", "--config", default="", metavar="FILE")
parser = argparse.ArgumentParser()
parser.add_argument("--model", default="tiny_resnet")
parser.add_argument("--img-size", type=int, default=32)
parser.add_argument("-b", "--batch-size", type=int, default=128, metavar="N")
parser.add_argument("-vb", "--validation-batch-size", type=int, default=None, metavar="N")
parser.add_argument("--opt", default="adamw")
parser.add_argument("--lr", type=float, default=5e-4)
parser.add_argument("--epochs", type=int, default=300)
parser.add_argument("--mixup", type=float, default=0.0)
parser.add_argument("--amp", action="store_true")
parser.add_argument("--grad-accum-steps", type=int, default=1)
parser.add_argument("-j", "--workers", type=int, default=0)
parser.add_argument("--output", default="output")


def parse_args():
    """A file gives new defaults, the command line has the last word."""
    known, remaining = config_parser.parse_known_args()
    if known.config:
        with open(known.config) as file:
            parser.set_defaults(**yaml.safe_load(file))
    args = parser.parse_args(remaining)
    return args, yaml.safe_dump(vars(args))


class Pictures(Dataset):
    def __init__(self, count, size):
        self.count, self.size = count, size

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.randint(0, 255, (3, self.size, self.size), dtype=torch.uint8), index % 10


class PrefetchLoader:
    """Normalises what the loader yields, one batch ahead."""

    def __init__(self, loader, device):
        self.loader, self.device = loader, device

    def __len__(self):
        return len(self.loader)

    def __iter__(self):
        ahead = None
        for image, target in self.loader:
            image = image.to(self.device).float().sub_(127).div_(64)
            target = target.to(self.device)
            if ahead is not None:
                yield ahead
            ahead = image, target
        yield ahead


def create_loader(dataset, batch_size, is_training=False, num_workers=0, device="cpu"):
    loader = DataLoader(
        dataset,
        batch_size=batch_size,
        shuffle=is_training,
        num_workers=num_workers,
        drop_last=is_training,
    )
    return PrefetchLoader(loader, device)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()
        )

    def forward(self, x):
        return x + self.body(x)


def create_model():
    return nn.Sequential(
        nn.Conv2d(3, 16, 4, 4),
        *(Block(16) for _ in range(3)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
    )


def mixup(images, target, alpha):
    share = torch.distributions.Beta(alpha, alpha).sample().item() if alpha else 1.0
    onehot = nn.functional.one_hot(target, 10).float()
    return (
        share * images + (1 - share) * images.flip(0),
        share * onehot + (1 - share) * onehot.flip(0),
    )


def main():
    args, text = parse_args()
    os.makedirs(args.output, exist_ok=True)
    with open(os.path.join(args.output, "args.yaml"), "w") as file:
        file.write(text)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = create_model().to(device)
    ema = torch.optim.swa_utils.AveragedModel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    loader_train = create_loader(
        Pictures(8192, args.img_size),
        batch_size=args.batch_size,
        is_training=True,
        num_workers=args.workers,
        device=device,
    )
    loader_eval = create_loader(
        Pictures(512, args.img_size), args.validation_batch_size or args.batch_size, device=device
    )
    cast = torch.autocast(device, dtype=torch.bfloat16) if args.amp else nullcontext()
    for epoch in range(args.epochs):
        model.train()
        for step, (images, target) in enumerate(loader_train):
            images, target = mixup(images, target, args.mixup)
            with cast:
                loss = nn.functional.cross_entropy(model(images), target) / args.grad_accum_steps
            loss.backward()
            if (step + 1) % args.grad_accum_steps == 0:
                optimizer.step()
                optimizer.zero_grad()
                ema.update_parameters(model)
        model.eval()
        with torch.no_grad():
            hits = [
                (model(images).argmax(1) == target).float().mean() for images, target in loader_eval
            ]
        print(epoch, loss.item(), torch.stack(hits).mean().item())


if __name__ == "__main__":
    main()
