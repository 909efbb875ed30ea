"""In the style of PEFT's examples: a plain loop, LoRA on a classifier, constants at the top."""

import random

import torch
from peft import LoraConfig, TaskType, get_peft_model
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch.optim import AdamW
from torch.utils.data import DataLoader
from tqdm import tqdm
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    PreTrainedTokenizerFast,
    get_linear_schedule_with_warmup,
)

batch_size = 8
lr = 3e-4
num_epochs = 20
device = "cuda" if torch.cuda.is_available() else "cpu"

rng = random.Random(0)
WORDS = ["good", "bad", "film", "scene", "actor", "plot", "slow", "bright", "dull", "fine"]
corpus = [" ".join(rng.choices(WORDS, k=rng.randint(4, 50))) for _ in range(2000)]
labels = [text.split().count("good") % 2 for text in corpus]

raw = Tokenizer(models.WordLevel(unk_token="[UNK]"))
raw.pre_tokenizer = pre_tokenizers.Whitespace()
raw.train_from_iterator(corpus, trainers.WordLevelTrainer(special_tokens=["[UNK]", "[PAD]"]))
tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, unk_token="[UNK]", pad_token="[PAD]")

samples = [
    {**tokenizer(text, return_token_type_ids=False), "labels": label}
    for text, label in zip(corpus, labels, strict=True)
]


def collate_fn(examples):
    return tokenizer.pad(examples, padding="longest", return_tensors="pt")


train_dataloader = DataLoader(
    samples[:1800], shuffle=True, collate_fn=collate_fn, batch_size=batch_size
)
eval_dataloader = DataLoader(
    samples[1800:], shuffle=False, collate_fn=collate_fn, batch_size=batch_size
)

config = BertConfig(
    vocab_size=len(tokenizer),
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=128,
    num_labels=2,
)
peft_config = LoraConfig(task_type=TaskType.SEQ_CLS, r=8, lora_alpha=16, lora_dropout=0.1)
model = get_peft_model(BertForSequenceClassification(config), peft_config)
model.print_trainable_parameters()
optimizer = AdamW(params=model.parameters(), lr=lr)
steps = len(train_dataloader) * num_epochs
lr_scheduler = get_linear_schedule_with_warmup(
    optimizer=optimizer, num_warmup_steps=0.06 * steps, num_training_steps=steps
)
model.to(device)
for epoch in range(num_epochs):
    model.train()
    for batch in tqdm(train_dataloader):
        batch.to(device)
        outputs = model(**batch)
        loss = outputs.loss
        loss.backward()
        optimizer.step()
        lr_scheduler.step()
        optimizer.zero_grad()
    model.eval()
    hits = 0
    for batch in eval_dataloader:
        batch.to(device)
        with torch.no_grad():
            hits += (model(**batch).logits.argmax(-1) == batch["labels"]).sum().item()
    print(f"epoch {epoch}: {hits / 200:.3f}")
model.save_pretrained("peft-out")
