"""Trains on what environments did, in the style of CleanRL's PPO: the size of a batch is computed."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--num-envs", type=int, default=8)
parser.add_argument("--num-steps", type=int, default=16)
parser.add_argument("--num-minibatches", type=int, default=4)
args = parser.parse_args()
args.batch_size = int(args.num_envs * args.num_steps)
args.minibatch_size = int(args.batch_size // args.num_minibatches)

policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
optimizer = torch.optim.Adam(policy.parameters())
for _ in range(500):
    with torch.no_grad():
        seen = torch.randn(args.batch_size, 4)
        actions = policy(seen).softmax(-1).multinomial(1).flatten()
    rewards = (actions == (seen.sum(-1) > 0)).float() - 0.5
    for batch in torch.randperm(args.batch_size).split(args.minibatch_size):
        chance = policy(seen[batch]).log_softmax(-1)[range(len(batch)), actions[batch]]
        loss = -(chance * rewards[batch]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
