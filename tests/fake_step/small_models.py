"""Small models of many kinds, and training steps of them, fake and real."""

import contextlib

import torch
from batchadvisor.probes.fake_step.fake_steps import FakeSteps
from batchadvisor.probes.fake_step.storage_count import StorageCount
from batchadvisor.records import Variant
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


class Residual(nn.Module):
    def __init__(self, width, to, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, to, 3, stride, 1, bias=False),
            nn.BatchNorm2d(to),
            nn.ReLU(inplace=True),
            nn.Conv2d(to, to, 3, 1, 1, bias=False),
            nn.BatchNorm2d(to),
        )
        self.short = nn.Conv2d(width, to, 1, stride, bias=False)

    def forward(self, x):
        return functional.relu(self.body(x) + self.short(x))


class Gpt(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.embed = nn.Embedding(64, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 128, dropout, "gelu", batch_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 64)

    def forward(self, x):
        return self.head(self.blocks(self.embed(x))).mean(1)


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(16, 32, 2, batch_first=True)
        self.head = nn.Linear(32, 64)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


class Unet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(3, 16, 3, 2, 1)
        self.deep = nn.Conv2d(16, 32, 3, 2, 1)
        self.back = nn.ConvTranspose2d(32, 16, 2, 2)
        self.up = nn.ConvTranspose2d(32, 8, 2, 2)
        self.head = nn.Linear(8 * 16 * 16, 64)

    def forward(self, x):
        first = functional.relu(self.down(x))
        back = functional.relu(self.back(functional.relu(self.deep(first))))
        return self.head(self.up(torch.cat([first, back], 1)).flatten(1))


class Checkpointed(Gpt):
    """Computes its blocks again in the backward pass."""

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks.layers:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(x).mean(1)


class Lora(nn.Module):
    """Trains a few numbers beside large layers that do not train."""

    def __init__(self):
        super().__init__()
        self.frozen = nn.ModuleList(nn.Linear(256, 256) for _ in range(3))
        self.frozen.requires_grad_(False)
        self.low = nn.ModuleList(nn.Linear(256, 4, bias=False) for _ in range(3))
        self.high = nn.ModuleList(nn.Linear(4, 256, bias=False) for _ in range(3))

    def forward(self, x):
        for frozen, low, high in zip(self.frozen, self.low, self.high, strict=True):
            x = functional.gelu(frozen(x) + high(low(x)))
        return x


def vectors(batch):
    return torch.randn(batch, 256), torch.randint(256, (batch,))


def images(batch):
    return torch.randn(batch, 3, 16, 16), torch.randint(64, (batch,))


def tokens(batch):
    return torch.randint(64, (batch, 24)), torch.randint(64, (batch,))


def series(batch):
    return torch.randn(batch, 20, 16), torch.randint(64, (batch,))


def resnet():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 1, 1),
        Residual(16, 16, 1),
        Residual(16, 32, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 64),
    )


MODELS = {
    "resnet": (resnet, images),
    "gpt": (lambda: Gpt(0.0), tokens),
    "dropout": (lambda: Gpt(0.1), tokens),
    "lstm": (Lstm, series),
    "unet": (Unet, images),
    "checkpointed": (lambda: Checkpointed(0.0), tokens),
    "lora": (Lora, vectors),
}
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
}


def made(name, optimizer, autocast):
    torch.manual_seed(0)
    build, batch = MODELS[name]
    model = build()
    chosen = OPTIMIZERS[optimizer](p for p in model.parameters() if p.requires_grad)

    def step(given):
        inputs, target = given
        chosen.zero_grad()
        context = torch.autocast("cpu", torch.bfloat16) if autocast else contextlib.nullcontext()
        with context:
            loss = functional.cross_entropy(model(inputs), target)
        loss.backward()
        loss.item()
        chosen.step()

    return model, chosen, step, batch


PLAIN = Variant()


def trained(optimizer):
    return [p for group in optimizer.param_groups for p in group["params"]]


def drive(steps, step, batch, num_steps=2):
    """Makes fake steps, as the door to a script drives them."""
    for number in range(num_steps):
        if number:
            steps.next_step()
        steps.enter(batch)
        try:
            step(batch)
        finally:
            steps.leave()


def faked(step, batch, optimizer, variant=PLAIN, num_steps=2, for_gpu=False):
    """What the last of some fake steps takes."""
    [steps] = faked_in_turn(step, [batch], optimizer, variant, num_steps, for_gpu)
    return steps


def faked_in_turn(step, batches, optimizer, variant=PLAIN, num_steps=2, for_gpu=False):
    """The same after the steps of each batch."""
    steps = FakeSteps(trained(optimizer), for_gpu=for_gpu)
    try:
        for batch in batches:
            steps.begin(variant)
            drive(steps, step, batch, num_steps)
            yield steps
    finally:
        steps.close()


def estimated(name, optimizer, autocast, size):
    _, chosen, step, batch = made(name, optimizer, autocast)
    return faked(step, batch(size), chosen).trial(size)


def measured(name, optimizer, autocast, size):
    """The peak of the second real step, by its real storages."""
    model, _, step, batch = made(name, optimizer, autocast)
    given, count = batch(size), StorageCount()
    count.hold([*model.parameters(), *model.buffers(), *given])
    with count:
        for _ in range(2):
            count.reset_peak()
            step(given)
    return count.peak_bytes
