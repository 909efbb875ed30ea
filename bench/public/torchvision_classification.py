"""In the style of torchvision's references/classification: a metric logger around the loader."""

import argparse
import datetime
import time
from collections import defaultdict

import torch
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler, TensorDataset
from torch.utils.data.dataloader import default_collate


class MetricLogger:
    def __init__(self):
        self.meters = defaultdict(list)

    def update(self, **values):
        for name, value in values.items():
            self.meters[name].append(float(value))

    def log_every(self, iterable, print_freq, header):
        start = time.time()
        for index, each in enumerate(iterable):
            yield each
            if index % print_freq == 0:
                shown = {
                    name: sum(kept[-20:]) / len(kept[-20:]) for name, kept in self.meters.items()
                }
                eta = datetime.timedelta(seconds=int(time.time() - start))
                print(f"{header} [{index}/{len(iterable)}] {eta} {shown}")


def train_one_epoch(model, criterion, optimizer, data_loader, device, epoch, args, scaler=None):
    model.train()
    logger = MetricLogger()
    for image, target in logger.log_every(data_loader, args.print_freq, f"Epoch: [{epoch}]"):
        image, target = image.to(device), target.to(device)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=args.amp):
            output = model(image)
            loss = criterion(output, target)
        optimizer.zero_grad()
        loss.backward()
        if args.clip_grad_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), args.clip_grad_norm)
        optimizer.step()
        batch_size = image.shape[0]
        hits = (output.argmax(1) == target.argmax(1)).sum().item()
        logger.update(loss=loss.item(), acc1=100 * hits / batch_size)


def evaluate(model, criterion, data_loader, device, args):
    model.eval()
    logger = MetricLogger()
    with torch.inference_mode():
        for image, target in logger.log_every(data_loader, args.print_freq, "Test:"):
            logger.update(loss=criterion(model(image.to(device)), target.to(device)).item())


def load_data():
    images = torch.randn(6000, 3, 32, 32)
    labels = torch.randint(0, 10, (6000,))
    return TensorDataset(images[:5000], labels[:5000]), TensorDataset(images[5000:], labels[5000:])


def main(args):
    device = torch.device(args.device)
    dataset, dataset_test = load_data()
    train_sampler, test_sampler = RandomSampler(dataset), SequentialSampler(dataset_test)

    def collate_fn(batch):
        images, labels = default_collate(batch)
        smooth = nn.functional.one_hot(labels, 10) * (1 - args.label_smoothing)
        return images, smooth + args.label_smoothing / 10

    data_loader = DataLoader(
        dataset,
        batch_size=args.batch_size,
        sampler=train_sampler,
        num_workers=args.workers,
        pin_memory=True,
        collate_fn=collate_fn,
    )
    data_loader_test = DataLoader(
        dataset_test, batch_size=args.batch_size, sampler=test_sampler, num_workers=args.workers
    )
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    ).to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
    warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.01, total_iters=2)
    main_schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs)
    scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [warm_up, main_schedule], [2])
    for epoch in range(args.epochs):
        train_one_epoch(model, criterion, optimizer, data_loader, device, epoch, args)
        scheduler.step()
        evaluate(model, criterion, data_loader_test, device, args)


def get_args_parser():
    parser = argparse.ArgumentParser(description="Classification Training", add_help=True)
    parser.add_argument("--device", default="cpu", type=str)
    parser.add_argument("-b", "--batch-size", default=32, type=int)
    parser.add_argument("--epochs", default=90, type=int)
    parser.add_argument("-j", "--workers", default=0, type=int)
    parser.add_argument("--lr", default=0.1, type=float)
    parser.add_argument("--label-smoothing", default=0.1, type=float)
    parser.add_argument("--clip-grad-norm", default=None, type=float)
    parser.add_argument("--print-freq", default=50, type=int)
    parser.add_argument("--amp", action="store_true")
    return parser


if __name__ == "__main__":
    main(get_args_parser().parse_args())
