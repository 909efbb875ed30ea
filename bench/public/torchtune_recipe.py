"""In the style of a torchtune recipe: a class, OmegaConf over a YAML file and `key=value` words."""

import argparse

import torch
from omegaconf import OmegaConf
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Instructions(Dataset):
    def __init__(self, count, longest):
        generator = torch.Generator().manual_seed(0)
        self.rows = [
            torch.randint(1, 200, (int(length),), generator=generator)
            for length in torch.randint(8, longest, (count,), generator=generator)
        ]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {"tokens": self.rows[index], "labels": self.rows[index]}


def padded_collate_sft(batch, padding_idx=0, ignore_idx=-100):
    pad = nn.utils.rnn.pad_sequence
    tokens = pad([row["tokens"] for row in batch], batch_first=True, padding_value=padding_idx)
    labels = pad([row["labels"] for row in batch], batch_first=True, padding_value=ignore_idx)
    return {"tokens": tokens.long(), "labels": labels.long()}


class Decoder(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.tok_embeddings = nn.Embedding(200, width)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.output = nn.Linear(width, 200)

    def forward(self, tokens):
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        return self.output(self.layers(self.tok_embeddings(tokens), mask=mask, is_causal=True))


class FullFinetuneRecipe:
    def __init__(self, cfg):
        self.total_epochs = cfg.epochs
        self._gradient_accumulation_steps = cfg.gradient_accumulation_steps
        self._clip_grad_norm = cfg.get("clip_grad_norm", None)
        self._device = torch.device(cfg.device)

    def setup(self, cfg):
        self._model = Decoder(cfg.model.embed_dim, cfg.model.num_layers).to(self._device)
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=cfg.optimizer.lr)
        self._loss_fn = nn.CrossEntropyLoss(ignore_index=-100, reduction="mean")
        self._dataloader = self._setup_data(
            cfg_dataset=cfg.dataset, shuffle=cfg.shuffle, batch_size=cfg.batch_size
        )

    def _setup_data(self, cfg_dataset, shuffle, batch_size):
        ds = Instructions(cfg_dataset.count, cfg_dataset.max_seq_len)
        sampler = DistributedSampler(ds, num_replicas=1, rank=0, shuffle=shuffle, seed=0)
        return DataLoader(
            dataset=ds,
            sampler=sampler,
            batch_size=batch_size,
            collate_fn=padded_collate_sft,
            drop_last=True,
        )

    def _loss_step(self, batch):
        labels = batch.pop("labels")
        logits = self._model(**batch)
        labels = torch.hstack((labels[..., 1:], torch.full((len(labels), 1), -100)))
        return self._loss_fn(logits.reshape(-1, logits.size(-1)), labels.reshape(-1))

    def train(self):
        self._optimizer.zero_grad()
        num_tokens, running_loss = 0, 0
        for epoch in range(self.total_epochs):
            self._dataloader.sampler.set_epoch(epoch)
            for idx, batch in enumerate(self._dataloader):
                current = (batch["labels"] != -100).sum()
                num_tokens += current
                loss = self._loss_step(batch) * current
                running_loss += loss.detach()
                loss.backward()
                if (idx + 1) % self._gradient_accumulation_steps == 0:
                    for parameter in self._model.parameters():
                        parameter.grad.div_(num_tokens)
                    if self._clip_grad_norm is not None:
                        nn.utils.clip_grad_norm_(self._model.parameters(), self._clip_grad_norm)
                    self._optimizer.step()
                    self._optimizer.zero_grad(set_to_none=True)
                    print(f"{epoch}|{idx}| loss {running_loss / num_tokens:.4f}")
                    num_tokens, running_loss = 0, 0


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    args, overrides = parser.parse_known_args()
    return OmegaConf.merge(OmegaConf.load(args.config), OmegaConf.from_dotlist(overrides))


def recipe_main(cfg):
    recipe = FullFinetuneRecipe(cfg=cfg)
    recipe.setup(cfg=cfg)
    recipe.train()


if __name__ == "__main__":
    recipe_main(parse())
