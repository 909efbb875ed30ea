"""No DataLoader at all: batches are cut from one long tensor by get_batch(), in the style of nanoGPT.
The options are --batch_size=32 or --batch_size 32."""

import argparse

import torch
import torch.nn as nn
from torch.nn import functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=12)
parser.add_argument("--block_size", type=int, default=16)
parser.add_argument("--max_iters", type=int, default=600)
parser.add_argument("--gradient_accumulation_steps", type=int, default=1)
args = parser.parse_args()

torch.manual_seed(1337)
text = " ".join(f"{n}*{n}={n * n}" for n in range(10_000))
chars = sorted(set(text))
data = torch.tensor([chars.index(c) for c in text], dtype=torch.long)
n = int(0.9 * len(data))
train_data, val_data = data[:n], data[n:]


def get_batch(split):
    source = train_data if split == "train" else val_data
    ix = torch.randint(len(source) - args.block_size, (args.batch_size,))
    x = torch.stack([source[i : i + args.block_size] for i in ix])
    y = torch.stack([source[i + 1 : i + 1 + args.block_size] for i in ix])
    return x, y


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(len(chars), 24)
        self.conv = nn.Conv1d(24, 96, 8)
        self.head = nn.Linear(96, len(chars))

    def forward(self, x, y):
        past = F.pad(self.emb(x).transpose(1, 2), (7, 0))
        logits = self.head(self.conv(past).relu().transpose(1, 2))
        return F.cross_entropy(logits.flatten(0, 1), y.flatten())


@torch.no_grad()
def estimate_loss():
    model.eval()
    losses = [model(*get_batch("val")).item() for _ in range(10)]
    model.train()
    return sum(losses) / len(losses)


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

for it in range(args.max_iters):
    if it % 200 == 0:
        print(f"iter {it}: val loss {estimate_loss():.4f}", flush=True)
    for _ in range(args.gradient_accumulation_steps):
        x, y = get_batch("train")
        loss = model(x, y) / args.gradient_accumulation_steps
        loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
print(f"iter {args.max_iters}: val loss {estimate_loss():.4f}")
