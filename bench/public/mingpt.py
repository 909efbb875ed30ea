"""In the style of minGPT: a CfgNode, a Trainer with callbacks, a sampler with replacement."""

import time
from collections import defaultdict

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, RandomSampler


class CfgNode:
    def __init__(self, **kwargs):
        self.__dict__.update(kwargs)

    def merge_from_dict(self, d):
        self.__dict__.update(d)


class SortDataset(Dataset):
    """Six digits, then the same in order."""

    def __init__(self, split, length=6, num_digits=3):
        self.split, self.length, self.num_digits = split, length, num_digits

    def __len__(self):
        return 10000

    def __getitem__(self, idx):
        inp = torch.randint(self.num_digits, size=(self.length,), dtype=torch.long)
        cat = torch.cat((inp, torch.sort(inp)[0]))
        x, y = cat[:-1].clone(), cat[1:].clone()
        y[: self.length - 1] = -1
        return x, y


class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.block_size, config.n_embd)
        layer = nn.TransformerEncoderLayer(
            config.n_embd, config.n_head, 4 * config.n_embd, 0.1, "gelu", batch_first=True
        )
        self.h = nn.TransformerEncoder(layer, config.n_layer, enable_nested_tensor=False)
        self.head = nn.Linear(config.n_embd, config.vocab_size, bias=False)

    def configure_optimizers(self, config):
        return torch.optim.AdamW(self.parameters(), lr=config.learning_rate, betas=config.betas)

    def forward(self, idx, targets=None):
        t = idx.shape[1]
        x = self.wte(idx) + self.wpe(torch.arange(t, device=idx.device))
        mask = nn.Transformer.generate_square_subsequent_mask(t, device=idx.device)
        logits = self.head(self.h(x, mask=mask, is_causal=True))
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)
        return logits, loss


class Trainer:
    @staticmethod
    def get_default_config():
        return CfgNode(
            device="auto",
            num_workers=0,
            max_iters=None,
            batch_size=64,
            learning_rate=3e-4,
            betas=(0.9, 0.95),
            grad_norm_clip=1.0,
        )

    def __init__(self, config, model, train_dataset):
        self.config, self.train_dataset = config, train_dataset
        self.callbacks = defaultdict(list)
        self.iter_dt = 0.0
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.model = model.to(self.device)

    def set_callback(self, onevent, callback):
        self.callbacks[onevent] = [callback]

    def trigger_callbacks(self, onevent):
        for callback in self.callbacks.get(onevent, []):
            callback(self)

    def run(self):
        model, config = self.model, self.config
        self.optimizer = model.configure_optimizers(config)
        train_loader = DataLoader(
            self.train_dataset,
            sampler=RandomSampler(self.train_dataset, replacement=True, num_samples=int(1e10)),
            shuffle=False,
            pin_memory=False,
            batch_size=config.batch_size,
            num_workers=config.num_workers,
        )
        model.train()
        self.iter_num = 0
        self.iter_time = time.time()
        data_iter = iter(train_loader)
        while True:
            try:
                batch = next(data_iter)
            except StopIteration:
                data_iter = iter(train_loader)
                batch = next(data_iter)
            x, y = (t.to(self.device) for t in batch)
            _, self.loss = model(x, y)
            model.zero_grad(set_to_none=True)
            self.loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), config.grad_norm_clip)
            self.optimizer.step()
            self.trigger_callbacks("on_batch_end")
            self.iter_num += 1
            tnow = time.time()
            self.iter_dt, self.iter_time = tnow - self.iter_time, tnow
            if config.max_iters is not None and self.iter_num >= config.max_iters:
                break


if __name__ == "__main__":
    model = GPT(CfgNode(vocab_size=3, block_size=11, n_embd=48, n_head=3, n_layer=3))
    train_config = Trainer.get_default_config()
    train_config.merge_from_dict({"max_iters": 20000, "learning_rate": 5e-4})
    trainer = Trainer(train_config, model, SortDataset("train"))

    def batch_end_callback(trainer):
        if trainer.iter_num % 100 == 0:
            print(f"iter_dt {trainer.iter_dt * 1000:.2f}ms; loss {trainer.loss.item():.5f}")

    trainer.set_callback("on_batch_end", batch_end_callback)
    trainer.run()
