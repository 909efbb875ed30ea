"""A small GPT with tied weights, dropout and AdamW; its size and its batches come as arguments."""

import argparse
from functools import partial

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset


class Gpt(nn.Module):
    def __init__(self, width, depth, length, words=512):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Embedding(length, width)
        block = nn.TransformerEncoderLayer(
            width, 4, 4 * width, 0.1, "gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(block, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids):
        places = torch.arange(ids.shape[1])
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        return self.head(self.blocks(self.words(ids) + self.places(places), mask, is_causal=True))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=100_000)
    parser.add_argument("--checkpoint", action="store_true")
    parser.add_argument("--batch-size", type=int, default=16)
    options = parser.parse_args()
    torch.manual_seed(0)
    ids = torch.randint(512, (options.tokens // options.length, options.length + 1))
    loader = DataLoader(TensorDataset(ids), options.batch_size, shuffle=True, drop_last=True)
    model = Gpt(options.width, 2, options.length)
    if options.checkpoint:
        for block in model.blocks.layers:
            block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for _ in range(3):
        for (batch,) in loader:
            logits = model(batch[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()


if __name__ == "__main__":
    main()
