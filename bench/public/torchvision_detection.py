"""In the style of torchvision's references/detection: lists of images, groups by aspect ratio."""

import argparse
from collections import defaultdict

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, Sampler


class Scenes(Dataset):
    """Pictures of two shapes with a few boxes each."""

    def __init__(self, count):
        self.wide = [index % 3 == 0 for index in range(count)]

    def __len__(self):
        return len(self.wide)

    def __getitem__(self, index):
        height, width = (48, 80) if self.wide[index] else (80, 48)
        boxes = torch.rand(1 + index % 4, 4) * 20
        boxes[:, 2:] += boxes[:, :2] + 4
        target = {
            "boxes": boxes,
            "labels": torch.randint(1, 5, (len(boxes),)),
            "image_id": index,
        }
        return torch.rand(3, height, width), target


class GroupedBatchSampler(BatchSampler):
    """Batches whose pictures all belong to one group."""

    def __init__(self, sampler, group_ids, batch_size):
        if not isinstance(sampler, Sampler):
            raise TypeError("a sampler is needed")
        self.sampler, self.group_ids, self.batch_size = sampler, group_ids, batch_size

    def __iter__(self):
        waiting = defaultdict(list)
        for index in self.sampler:
            group = self.group_ids[index]
            waiting[group].append(index)
            if len(waiting[group]) == self.batch_size:
                yield waiting[group]
                del waiting[group]

    def __len__(self):
        return len(self.sampler) // self.batch_size


class Detector(nn.Module):
    """Takes lists; in training it returns a dictionary of losses."""

    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 16, 5, stride=4), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU()
        )
        self.classes = nn.Linear(32, 5)
        self.boxes = nn.Linear(32, 4)

    def forward(self, images, targets):
        height = max(image.shape[1] for image in images)
        width = max(image.shape[2] for image in images)
        batch = torch.zeros(len(images), 3, height, width)
        for row, image in zip(batch, images, strict=True):
            row[:, : image.shape[1], : image.shape[2]] = image
        features = self.backbone(batch).mean((2, 3))
        labels = torch.stack([target["labels"][0] for target in targets])
        boxes = torch.stack([target["boxes"].mean(0) for target in targets])
        return {
            "loss_classifier": nn.functional.cross_entropy(self.classes(features), labels),
            "loss_box_reg": nn.functional.smooth_l1_loss(self.boxes(features), boxes),
        }


def collate_fn(batch):
    return tuple(zip(*batch, strict=True))


def train_one_epoch(model, optimizer, data_loader, epoch):
    model.train()
    for images, targets in data_loader:
        loss_dict = model(list(images), [dict(target) for target in targets])
        losses = sum(loss for loss in loss_dict.values())
        optimizer.zero_grad()
        losses.backward()
        optimizer.step()
    print(epoch, losses.item())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-b", "--batch-size", default=2, type=int, help="images per GPU")
    parser.add_argument("--epochs", default=26, type=int)
    parser.add_argument("--aspect-ratio-group-factor", default=3, type=int)
    args = parser.parse_args()
    dataset = Scenes(2000)
    train_sampler = RandomSampler(dataset)
    if args.aspect_ratio_group_factor >= 0:
        group_ids = [int(wide) for wide in dataset.wide]
        train_batch_sampler = GroupedBatchSampler(train_sampler, group_ids, args.batch_size)
    else:
        train_batch_sampler = BatchSampler(train_sampler, args.batch_size, drop_last=True)
    data_loader = DataLoader(
        dataset, batch_sampler=train_batch_sampler, num_workers=0, collate_fn=collate_fn
    )
    model = Detector()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.002, momentum=0.9)
    for epoch in range(args.epochs):
        train_one_epoch(model, optimizer, data_loader, epoch)


if __name__ == "__main__":
    main()
