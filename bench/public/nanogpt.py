"""In the style of nanoGPT: no DataLoader, settings as globals that the command line overrides."""

import math
import sys
from ast import literal_eval
from contextlib import nullcontext

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

eval_interval = 200
max_iters = 5000
gradient_accumulation_steps = 2
batch_size = 12
block_size = 64
n_layer = 2
n_head = 4
n_embd = 64
learning_rate = 1e-3
warmup_iters = 100
device = "cpu"
dtype = "float32"

for argument in sys.argv[1:]:
    key, _, value = argument.removeprefix("--").partition("=")
    if key not in globals():
        raise ValueError(f"Unknown config key: {key}")
    globals()[key] = literal_eval(value)

torch.manual_seed(1337)
data = np.random.default_rng(0).integers(0, 65, 100_000).astype(np.uint16)
train_data, val_data = data[:90_000], data[90_000:]


def get_batch(split):
    source = train_data if split == "train" else val_data
    starts = torch.randint(len(source) - block_size, (batch_size,))
    x = torch.stack([torch.from_numpy(source[i : i + block_size].astype(np.int64)) for i in starts])
    y = torch.stack(
        [torch.from_numpy(source[i + 1 : i + 1 + block_size].astype(np.int64)) for i in starts]
    )
    return x.to(device), y.to(device)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.c_attn, self.c_proj = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)
        self.mlp = nn.Sequential(
            nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd)
        )

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (
            part.view(b, t, n_head, c // n_head).transpose(1, 2)
            for part in self.c_attn(self.ln_1(x)).split(n_embd, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(65, n_embd), nn.Embedding(block_size, n_embd)
        self.h = nn.Sequential(*(Block() for _ in range(n_layer)))
        self.lm_head = nn.Linear(n_embd, 65, bias=False)

    def forward(self, idx, targets):
        x = self.h(self.wte(idx) + self.wpe(torch.arange(idx.shape[1], device=idx.device)))
        logits = self.lm_head(x)
        return logits, F.cross_entropy(logits.view(-1, 65), targets.view(-1))


model = GPT().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.95))
ctx = nullcontext()


@torch.no_grad()
def estimate_loss():
    model.eval()
    losses = {name: model(*get_batch(name))[1].item() for name in ("train", "val")}
    model.train()
    return losses


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / (warmup_iters + 1)
    return learning_rate * 0.5 * (1 + math.cos(math.pi * it / max_iters))


X, Y = get_batch("train")
for iter_num in range(max_iters):
    for group in optimizer.param_groups:
        group["lr"] = get_lr(iter_num)
    if iter_num % eval_interval == 0:
        print(iter_num, estimate_loss())
    for _ in range(gradient_accumulation_steps):
        with ctx:
            _, loss = model(X, Y)
            loss = loss / gradient_accumulation_steps
        X, Y = get_batch("train")
        loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
