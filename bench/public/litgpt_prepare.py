"""Makes what `litgpt finetune_lora` starts from: a checkpoint of a small GPT, a tokenizer, data."""

import json
import random
from pathlib import Path

import torch
from litgpt.config import Config
from litgpt.model import GPT
from litgpt.utils import save_config
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

folder = Path("checkpoints/tiny/gpt")
folder.mkdir(parents=True, exist_ok=True)
rng = random.Random(0)
words = ["model", "batch", "step", "layer", "token", "loss", "rate", "size", "memory", "time"]
rows = [
    {
        "instruction": " ".join(rng.choices(words, k=rng.randint(3, 12))),
        "input": "",
        "output": " ".join(rng.choices(words, k=rng.randint(2, 30))),
    }
    for _ in range(600)
]
Path("data.json").write_text(json.dumps(rows))
tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer.train_from_iterator(
    (row["output"] for row in rows),
    trainers.BpeTrainer(vocab_size=300, special_tokens=["<unk>", "<s>", "</s>"]),
)
tokenizer.save(str(folder / "tokenizer.json"))
(folder / "tokenizer_config.json").write_text(
    json.dumps({"bos_token": "<s>", "eos_token": "</s>", "tokenizer_class": "GPT2Tokenizer"})
)
config = Config(
    name="tiny",
    block_size=256,
    vocab_size=300,
    padded_vocab_size=320,
    n_layer=2,
    n_head=4,
    n_embd=64,
)
torch.manual_seed(0)
torch.save(GPT(config).state_dict(), folder / "lit_model.pth")
save_config(config, folder)
