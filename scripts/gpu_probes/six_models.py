"""Six small models whose steps are made both on the device and on fake tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

CLASSES, WORDS, LENGTH, WIDTH = 64, 512, 256, 256


class Gpt(nn.Module):
    """A small one; its blocks may drop out, or compute their activations again."""

    def __init__(self, dropout: float = 0.0, *, again: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        layer = nn.TransformerEncoderLayer(
            WIDTH, 4, 4 * WIDTH, dropout, "gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, CLASSES)
        self.again = again

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        for block in self.blocks.layers:
            x = checkpoint(block, x, use_reentrant=False) if self.again else block(x)
        return self.head(x).mean(1)


class Residual(nn.Module):
    """Two convolutions beside a short way."""

    def __init__(self, width: int, to: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, to, 3, 2, 1, bias=False),
            nn.BatchNorm2d(to),
            nn.ReLU(inplace=True),
            nn.Conv2d(to, to, 3, 1, 1, bias=False),
            nn.BatchNorm2d(to),
        )
        self.short = nn.Conv2d(width, to, 1, 2, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.body(x) + self.short(x))


class Unet(nn.Module):
    """Down and up again, with a bridge."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.deep = nn.Conv2d(3, 32, 3, 2, 1), nn.Conv2d(32, 64, 3, 2, 1)
        self.back, self.up = nn.ConvTranspose2d(64, 32, 2, 2), nn.ConvTranspose2d(64, 8, 2, 2)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = functional.relu(self.down(x))
        back = functional.relu(self.back(functional.relu(self.deep(first))))
        return self.head(self.up(torch.cat([first, back], 1)).mean((2, 3)))


class Lora(nn.Module):
    """Trains a few numbers beside layers that do not train."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.ModuleList(nn.Linear(1024, 1024) for _ in range(8))
        self.frozen.requires_grad_(requires_grad=False)
        self.low = nn.ModuleList(nn.Linear(1024, 8, bias=False) for _ in range(8))
        self.high = nn.ModuleList(nn.Linear(8, 1024, bias=False) for _ in range(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for frozen, low, high in zip(self.frozen, self.low, self.high, strict=True):
            x = functional.gelu(frozen(x) + high(low(x)))
        return x[:, :CLASSES]


def _resnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 32, 7, 2, 3),
        Residual(32, 64),
        Residual(64, 128),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(128, CLASSES),
    )


def _images(batch: int) -> torch.Tensor:
    return torch.randn(batch, 3, 96, 96)


def _tokens(batch: int) -> torch.Tensor:
    return torch.randint(WORDS, (batch, LENGTH))


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], torch.Tensor]]] = {
    "resnet": (_resnet, _images),
    "unet": (Unet, _images),
    "gpt": (Gpt, _tokens),
    "gpt with dropout": (lambda: Gpt(0.1), _tokens),
    "gpt checkpointed": (lambda: Gpt(again=True), _tokens),
    "lora": (Lora, lambda batch: torch.randn(batch, 1024)),
}
"""A model, and the inputs of a batch."""


def steps_of(name: str, device: str, batch_size: int) -> tuple[nn.Module, Any, list[Any], Any]:
    """A model, its optimizer, a batch, and a function that makes a step on it."""
    torch.manual_seed(0)
    build, inputs = MODELS[name]
    model = build().to(device)
    optimizer = torch.optim.AdamW(p for p in model.parameters() if p.requires_grad)
    batch = [inputs(batch_size).to(device), torch.randint(CLASSES, (batch_size,)).to(device)]

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(batch[0]), batch[1]).backward()
        optimizer.step()

    return model, optimizer, batch, step
