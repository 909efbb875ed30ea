"""A Llama-like model trained on tokens of a DataLoader, for estimate_large.py.

python bench/large_llama.py 70B 8 2048      # size, sequences of a batch, tokens of a sequence
"""

import sys
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

VOCABULARY = 128_256


class Size(NamedTuple):
    blocks: int
    width: int
    inner: int
    heads: int
    groups: int


SIZES = {
    "0.1B": Size(4, 512, 2048, 8, 4),
    "1B": Size(16, 2048, 8192, 32, 8),
    "8B": Size(32, 4096, 14_336, 32, 8),
    "70B": Size(80, 8192, 28_672, 64, 8),
}


class Attention(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.each = size.width // size.heads
        self.query = nn.Linear(size.width, size.width, bias=False)
        self.key = nn.Linear(size.width, size.groups * self.each, bias=False)
        self.value = nn.Linear(size.width, size.groups * self.each, bias=False)
        self.out = nn.Linear(size.width, size.width, bias=False)

    def forward(self, x: torch.Tensor, turns: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        parts = (self.query(x), self.key(x), self.value(x))
        query, key, value = (part.unflatten(-1, (-1, self.each)).transpose(1, 2) for part in parts)
        query, key = turned(query, *turns), turned(key, *turns)
        mixed = functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, enable_gqa=True
        )
        return self.out(mixed.transpose(1, 2).flatten(2))


def turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Block(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.before = nn.RMSNorm(size.width)
        self.attention = Attention(size)
        self.between = nn.RMSNorm(size.width)
        self.gate = nn.Linear(size.width, size.inner, bias=False)
        self.up = nn.Linear(size.width, size.inner, bias=False)
        self.down = nn.Linear(size.inner, size.width, bias=False)

    def forward(self, x: torch.Tensor, turns: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        x = x + self.attention(self.before(x), turns)
        within = self.between(x)
        return x + self.down(functional.silu(self.gate(within)) * self.up(within))


class Llama(nn.Module):
    def __init__(self, size: Size, length: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, size.width)
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.blocks))
        self.norm = nn.RMSNorm(size.width)
        self.head = nn.Linear(size.width, VOCABULARY, bias=False)
        each = size.width // size.heads
        steps = torch.arange(0, each, 2) / each
        angles = torch.outer(torch.arange(length), 500_000.0**-steps).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, (self.cos, self.sin))
        return self.head(self.norm(x))


class Tokens(Dataset):
    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.arange(index, index + self.length + 1) % VOCABULARY


def main(name: str, batch_size: int, length: int) -> None:
    model = Llama(SIZES[name], length)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for tokens in DataLoader(Tokens(length), batch_size=batch_size, shuffle=True):
        logits = model(tokens[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
