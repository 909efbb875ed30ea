"""In the style of llm.c's train_gpt2.py: no DataLoader, and batches divide the tokens of a step."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=4)
parser.add_argument("--sequence_length", type=int, default=16)
parser.add_argument("--total_batch_size", type=int, default=64, help="in tokens")
parser.add_argument("--num_iterations", type=int, default=1_000_000)
args = parser.parse_args()

B, T = args.batch_size, args.sequence_length
tokens_per_fwdbwd = B * T
assert args.total_batch_size % tokens_per_fwdbwd == 0
grad_accum_steps = args.total_batch_size // tokens_per_fwdbwd

torch.manual_seed(0)
tokens = torch.randint(0, 64, (10_000,))
model = nn.Sequential(nn.Embedding(64, 16), nn.Linear(16, 64))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(args.num_iterations):
    optimizer.zero_grad(set_to_none=True)
    for _ in range(grad_accum_steps):
        x = tokens[: B * T].view(B, T)
        logits = model(x)
        loss = nn.functional.cross_entropy(logits.view(-1, 64), x.view(-1)) / grad_accum_steps
        loss.backward()
    optimizer.step()
