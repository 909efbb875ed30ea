"""In the style of makemore: a loader without end, names cut to one length, argparse options."""

import argparse
import random
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, RandomSampler


class CharDataset(Dataset):
    def __init__(self, words, chars, max_word_length):
        self.words, self.max_word_length = words, max_word_length
        self.stoi = {ch: i + 1 for i, ch in enumerate(chars)}

    def __len__(self):
        return len(self.words)

    def __getitem__(self, idx):
        ix = torch.tensor([self.stoi[ch] for ch in self.words[idx]])
        x = torch.zeros(self.max_word_length + 1, dtype=torch.long)
        y = torch.zeros(self.max_word_length + 1, dtype=torch.long)
        x[1 : 1 + len(ix)] = ix
        y[: len(ix)] = ix
        y[len(ix) + 1 :] = -1
        return x, y


class InfiniteDataLoader:
    """Draws with replacement, for ever."""

    def __init__(self, dataset, **kwargs):
        train_sampler = RandomSampler(dataset, replacement=True, num_samples=int(1e10))
        self.train_loader = DataLoader(dataset, sampler=train_sampler, **kwargs)
        self.data_iter = iter(self.train_loader)

    def next(self):
        try:
            batch = next(self.data_iter)
        except StopIteration:
            self.data_iter = iter(self.train_loader)
            batch = next(self.data_iter)
        return batch


class RNN(nn.Module):
    def __init__(self, vocab_size, n_embd):
        super().__init__()
        self.wte = nn.Embedding(vocab_size, n_embd)
        self.cell = nn.GRU(n_embd, n_embd, batch_first=True)
        self.lm_head = nn.Linear(n_embd, vocab_size)

    def forward(self, idx, targets):
        logits = self.lm_head(self.cell(self.wte(idx))[0])
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)


@torch.inference_mode()
def evaluate(model, dataset, batch_size=50, max_batches=None):
    model.eval()
    loader = DataLoader(dataset, shuffle=True, batch_size=batch_size, num_workers=0)
    losses = []
    for i, (x, y) in enumerate(loader):
        losses.append(model(x, y)[1].item())
        if max_batches is not None and i >= max_batches:
            break
    model.train()
    return sum(losses) / len(losses)


def create_datasets():
    rng = random.Random(42)
    words = ["".join(rng.choices("abcdefgh", k=rng.randint(2, 14))) for _ in range(4000)]
    chars = sorted(set("".join(words)))
    longest = max(map(len, words))
    return CharDataset(words[:3600], chars, longest), CharDataset(words[3600:], chars, longest)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make More")
    parser.add_argument("--num-workers", "-n", type=int, default=0)
    parser.add_argument("--max-steps", type=int, default=-1)
    parser.add_argument("--n-embd", type=int, default=32)
    parser.add_argument("--batch-size", "-b", type=int, default=32, help="batch size")
    parser.add_argument("--learning-rate", "-l", type=float, default=5e-4)
    args = parser.parse_args()
    train_dataset, test_dataset = create_datasets()
    model = RNN(len(train_dataset.stoi) + 1, args.n_embd)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, weight_decay=0.01)
    batch_loader = InfiniteDataLoader(
        train_dataset, batch_size=args.batch_size, pin_memory=True, num_workers=args.num_workers
    )
    step = 0
    while True:
        t0 = time.time()
        X, Y = batch_loader.next()
        logits, loss = model(X, Y)
        model.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step} | loss {loss.item():.4f} | {(time.time() - t0) * 1000:.2f}ms")
        if step > 0 and step % 500 == 0:
            print(evaluate(model, test_dataset, batch_size=100, max_batches=10))
        step += 1
        if 0 <= args.max_steps <= step:
            break
