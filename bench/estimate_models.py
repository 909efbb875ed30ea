"""The models of `estimate_accuracy.py`: small enough for real steps on a CPU, to train."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.fake_step import small_models

VOCABULARY, LENGTH, WIDTH = 512, 128, 128
CLASSES = 100


class Residual(small_models.Residual):
    """The basic block of He et al. 2015 (arXiv 1512.03385)."""

    def __init__(self, width: int, to: int, stride: int) -> None:
        super().__init__(width, to, stride)
        same = stride == 1 and width == to
        self.short = nn.Identity()
        if not same:
            conv = nn.Conv2d(width, to, 1, stride, bias=False)
            self.short = nn.Sequential(conv, nn.BatchNorm2d(to))

    def forward(self, x: Any) -> Any:
        return functional.relu(self.body(x) + self.short(x), inplace=True)


def resnet18() -> nn.Module:
    """As in torchvision: 11 million parameters."""
    blocks: list[nn.Module] = []
    width = 64
    for to, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        blocks += [Residual(width, to, stride), Residual(to, to, 1)]
        width = to
    stem = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)
    head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, CLASSES)
    return nn.Sequential(*stem, nn.MaxPool2d(3, 2, 1), *blocks, *head)


class Block(nn.Module):
    """A pre-norm transformer block."""

    def __init__(self, dropout: float, *, causal: bool) -> None:
        super().__init__()
        self.causal, self.p = causal, dropout
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(dropout)
        )

    def forward(self, x: Any) -> Any:
        num, length, _ = x.shape
        parts = self.qkv(self.before(x)).view(num, length, 3, 4, WIDTH // 4)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        mixed = self.out(mixed.transpose(1, 2).reshape(num, length, WIDTH))
        x = x + functional.dropout(mixed, self.p, self.training)
        return x + self.wide(self.between(x))


class Gpt(nn.Module):
    """Predicts the next token of each."""

    def __init__(self, dropout: float = 0.0, *, checkpointed: bool = False) -> None:
        super().__init__()
        self.checkpointed = checkpointed
        self.embed, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block(dropout, causal=True) for _ in range(4))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, x: Any) -> Any:
        x = self.embed(x) + self.places.weight
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        return self.head(self.norm(x)).transpose(1, 2)


class Low(nn.Module):
    """LoRA (Hu et al. 2021, arXiv 2106.09685) beside a linear layer that does not train."""

    def __init__(self, frozen: nn.Linear) -> None:
        super().__init__()
        self.frozen = frozen
        self.low = nn.Linear(frozen.in_features, 8, bias=False)
        self.high = nn.Linear(8, frozen.out_features, bias=False)

    def forward(self, x: Any) -> Any:
        return self.frozen(x) + self.high(self.low(x))


def lora() -> nn.Module:
    """A GPT of which only layers of rank 8 in its blocks train."""
    model = Gpt()
    model.requires_grad_(requires_grad=False)
    for block in model.blocks:
        block.qkv, block.out = Low(block.qkv), Low(block.out)
    return model


class Recurrent(nn.Module):
    """LSTM or GRU, and the class of a series."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.layers, self.head = kind(16, WIDTH, 2, batch_first=True), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Any) -> Any:
        return self.head(self.layers(x)[0][:, -1])


def _twice(width: int, to: int) -> nn.Module:
    layers: list[nn.Module] = []
    for come in (width, to):
        layers += [nn.Conv2d(come, to, 3, padding=1), nn.BatchNorm2d(to), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


class Unet(nn.Module):
    """Three levels (Ronneberger et al. 2015, arXiv 1505.04597); a class for each pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.deep = _twice(3, 16), _twice(16, 32), _twice(32, 64)
        self.back, self.up = nn.ConvTranspose2d(64, 32, 2, 2), nn.ConvTranspose2d(32, 16, 2, 2)
        self.third, self.last = _twice(64, 32), _twice(32, 16)
        self.head = nn.Conv2d(16, 4, 1)

    def forward(self, x: Any) -> Any:
        first = self.first(x)
        second = self.second(functional.max_pool2d(first, 2))
        back = self.back(self.deep(functional.max_pool2d(second, 2)))
        back = self.up(self.third(torch.cat([second, back], 1)))
        return self.head(self.last(torch.cat([first, back], 1)))


class Vit(nn.Module):
    """A vision transformer on patches of 8 x 8 (Dosovitskiy et al. 2020, arXiv 2010.11929)."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 8, 8)
        self.blocks = nn.Sequential(*(Block(0.0, causal=False) for _ in range(4)))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Any) -> Any:
        return self.head(self.blocks(self.patches(x).flatten(2).transpose(1, 2)).mean(1))


def perceptron() -> nn.Module:
    """Wide layers: much of the memory is of parameters."""
    layers: list[nn.Module] = []
    for _ in range(6):
        layers += [nn.Linear(1024, 1024), nn.BatchNorm1d(1024), nn.SiLU()]
    return nn.Sequential(nn.Linear(256, 1024), *layers, nn.Linear(1024, CLASSES))


Batch = Callable[[int], tuple[torch.Tensor, torch.Tensor]]


def _images(width: int, *, pixels: bool = False) -> Batch:
    def batch(num: int) -> tuple[torch.Tensor, torch.Tensor]:
        shape = (num, width, width) if pixels else (num,)
        return torch.randn(num, 3, width, width), torch.randint(4, shape)

    return batch


def _tokens(num: int) -> tuple[torch.Tensor, torch.Tensor]:
    whole = torch.randint(VOCABULARY, (num, LENGTH + 1))
    return whole[:, :-1].contiguous(), whole[:, 1:].contiguous()


def _series(num: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(num, 50, 16), torch.randint(CLASSES, (num,))


def _rows(num: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(num, 256), torch.randint(CLASSES, (num,))


class Model(NamedTuple):
    """What is trained.

    Attributes:
        build: makes it.
        batch: makes its inputs and targets.
        largest: batch size that is traced at most.
        fused: whether the CPU's fused kernels may run; of an LSTM, nothing says what they take.
    """

    build: Callable[[], nn.Module]
    batch: Batch
    largest: int
    fused: bool = True


MODELS = {
    "ResNet-18": Model(resnet18, _images(64), 12),
    "GPT": Model(Gpt, _tokens, 4),
    "GPT, dropout": Model(lambda: Gpt(0.1), _tokens, 4),
    "GPT, checkpointed": Model(lambda: Gpt(checkpointed=True), _tokens, 8),
    "GPT, LoRA": Model(lora, _tokens, 4),
    "LSTM": Model(lambda: Recurrent(nn.LSTM), _series, 16, fused=False),
    "U-Net": Model(Unet, _images(64, pixels=True), 4),
    "ViT": Model(Vit, _images(64), 12),
    "GRU": Model(lambda: Recurrent(nn.GRU), _series, 16, fused=False),
    "perceptron": Model(perceptron, _rows, 256),
}
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=0.001),
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9),
}
