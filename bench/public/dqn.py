"""In the style of CleanRL's dqn.py: a replay buffer that is sampled, no DataLoader."""

import argparse
import random

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--total-timesteps", type=int, default=100000)
    parser.add_argument("--learning-rate", type=float, default=2.5e-4)
    parser.add_argument("--buffer-size", type=int, default=10000)
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--tau", type=float, default=1.0)
    parser.add_argument("--target-network-frequency", type=int, default=500)
    parser.add_argument("--batch-size", type=int, default=128, help="samples from the memory")
    parser.add_argument("--learning-starts", type=int, default=1000)
    parser.add_argument("--train-frequency", type=int, default=10)
    return parser.parse_args()


class ReplayBuffer:
    def __init__(self, size, observations):
        self.size, self.position, self.full = size, 0, False
        self.observations = np.zeros((size, observations), np.float32)
        self.next_observations = np.zeros((size, observations), np.float32)
        self.actions = np.zeros((size, 1), np.int64)
        self.rewards = np.zeros(size, np.float32)
        self.dones = np.zeros(size, np.float32)

    def add(self, obs, next_obs, action, reward, done):
        where = self.position
        self.observations[where], self.next_observations[where] = obs, next_obs
        self.actions[where], self.rewards[where], self.dones[where] = action, reward, done
        self.position = (where + 1) % self.size
        self.full = self.full or self.position == 0

    def sample(self, batch_size):
        rows = np.random.randint(0, self.size if self.full else self.position, size=batch_size)
        arrays = (
            self.observations, self.actions, self.next_observations, self.rewards, self.dones,
        )  # fmt: skip
        return [torch.from_numpy(array[rows]) for array in arrays]


class Pole:
    """A pole to be kept upright, two actions."""

    def reset(self):
        self.state = np.random.uniform(-0.05, 0.05, 4).astype(np.float32)
        return self.state

    def step(self, action):
        x, v, angle, turn = self.state
        push = 1.0 if action else -1.0
        turn += 0.02 * (9.8 * np.sin(angle) - push * np.cos(angle))
        self.state = np.array(
            [x + 0.02 * v, v + 0.02 * push, angle + 0.02 * turn, turn], np.float32
        )
        return self.state, 1.0, abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.2


class QNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(
            nn.Linear(4, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 2)
        )

    def forward(self, x):
        return self.network(x)


if __name__ == "__main__":
    args = parse_args()
    env = Pole()
    q_network, target_network = QNetwork(), QNetwork()
    optimizer = torch.optim.Adam(q_network.parameters(), lr=args.learning_rate)
    target_network.load_state_dict(q_network.state_dict())
    rb = ReplayBuffer(args.buffer_size, 4)
    obs = env.reset()
    for global_step in range(args.total_timesteps):
        if random.random() < max(0.05, 1 - global_step / 50000):
            action = random.randrange(2)
        else:
            action = int(q_network(torch.from_numpy(obs)).argmax())
        next_obs, reward, done = env.step(action)
        rb.add(obs, next_obs, action, reward, done)
        obs = env.reset() if done else next_obs
        if global_step > args.learning_starts and global_step % args.train_frequency == 0:
            states, actions, next_states, rewards, dones = rb.sample(args.batch_size)
            with torch.no_grad():
                target_max = target_network(next_states).max(dim=1).values
                td_target = rewards + args.gamma * target_max * (1 - dones)
            old_val = q_network(states).gather(1, actions).squeeze()
            loss = F.mse_loss(td_target, old_val)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if global_step % args.target_network_frequency == 0:
                for target, own in zip(
                    target_network.parameters(), q_network.parameters(), strict=True
                ):
                    target.data.copy_(args.tau * own.data + (1 - args.tau) * target.data)
