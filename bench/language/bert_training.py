"""Trains BERT-large on random tokens as the example of transformers' page on one GPU did in 2022.

    python bench/language/bert_training.py plain
    python bench/language/bert_training.py "accumulation 4 + checkpointing + fp16 + Adafactor"

Sequences of 512 tokens are told apart in two classes, attention is written out, gradients are kept
and set to zero, the optimizer walks its parameters one by one. Random weights of the published
shape: nothing is loaded.
"""

import sys

import torch
from transformers import BertConfig, BertForSequenceClassification

words = sys.argv[1].split(" + ")
accumulation = 4 if "accumulation 4" in words else 1
half = "fp16" in words
device = "cuda" if torch.cuda.is_available() else "cpu"
config = BertConfig(
    hidden_size=1024,
    num_hidden_layers=24,
    num_attention_heads=16,
    intermediate_size=4096,
    attn_implementation="eager",
)
model = BertForSequenceClassification(config).to(device).train()
if "checkpointing" in words:
    model.gradient_checkpointing_enable()
if "Adafactor" in words:
    optimizer = torch.optim.Adafactor(model.parameters(), lr=1e-5, foreach=False)
else:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, foreach=False)


class Tokens(torch.utils.data.Dataset):
    """More than any batch takes."""

    def __len__(self):
        return 1 << 20

    def __getitem__(self, number):
        return torch.zeros(512, dtype=torch.long)


loader = torch.utils.data.DataLoader(
    Tokens(), batch_size=4 // accumulation, collate_fn=torch.stack, drop_last=True
)
for tokens in loader:
    # All micro-batches of a step in one turn of the loop: they differ in nothing.
    for _ in range(accumulation):
        with torch.autocast("cuda", torch.float16, enabled=half):
            labels = torch.zeros(len(tokens), dtype=torch.long, device=device)
            loss = model(tokens.to(device), labels=labels).loss / accumulation
        loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
