"""Finetunes a language model of LitGPT with LoRA or adapters, as its tables of October 2023 did.

    python bench/language/adapter_training.py Llama-2-7b-hf lora 1304

Weights are bf16, only the added ones are trained, with torch's AdamW; the loss is taken of the
logits in pieces; each batch is as long as the data's longest sample. Random weights of the
published shape: nothing is loaded.
"""

import importlib
import sys

import torch
from litgpt.utils import chunked_cross_entropy

name, technique, length = sys.argv[1], sys.argv[2], int(sys.argv[3])
kind = importlib.import_module(f"litgpt.{technique}")
added = {"lora_r": 8, "lora_alpha": 16, "lora_dropout": 0.05, "lora_query": True}
added |= {"lora_value": True}
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.set_default_dtype(torch.bfloat16)
config = kind.Config.from_name(name, **(added if technique == "lora" else {}))
with torch.device(device):
    model = kind.GPT(config)
torch.set_default_dtype(torch.float32)
model.max_seq_length = length
if technique == "lora":
    kind.mark_only_lora_as_trainable(model)
elif technique == "adapter":
    kind.mark_only_adapter_as_trainable(model)
else:
    kind.mark_only_adapter_v2_as_trainable(model)
model.train()
trained = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=3e-4, weight_decay=0.01)


class Tokens(torch.utils.data.Dataset):
    """More than any batch takes."""

    def __len__(self):
        return 1 << 20

    def __getitem__(self, number):
        return torch.zeros(length, dtype=torch.long)


loader = torch.utils.data.DataLoader(Tokens(), batch_size=1, collate_fn=torch.stack, drop_last=True)
for batch in loader:
    tokens = batch.to(device)
    logits = model(tokens, lm_head_chunk_size=128)
    logits[-1] = logits[-1][..., :-1, :]
    chunked_cross_entropy(logits, tokens[..., 1:]).backward()
    optimizer.step()
    optimizer.zero_grad()
    for block in model.transformer.h:
        # Later versions keep keys and values of the prefix, with their graph, until an evaluation.
        block.attn.adapter_kv_cache = None
