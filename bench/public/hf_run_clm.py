"""In the style of transformers' run_clm.py: options from a JSON file, checkpointing, bf16, eval."""

import random
import sys
from dataclasses import dataclass, field

from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import (
    DataCollatorForLanguageModeling,
    HfArgumentParser,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
)


@dataclass
class ModelArguments:
    hidden_size: int = field(default=64)
    num_hidden_layers: int = field(default=2)


@dataclass
class DataArguments:
    num_texts: int = field(default=2000)
    block_size: int = field(default=48)


def texts(count):
    rng = random.Random(0)
    words = ["model", "batch", "step", "layer", "token", "loss", "rate", "size", "memory", "time"]
    return [" ".join(rng.choices(words, k=rng.randint(4, 40))) for _ in range(count)]


def train_tokenizer(corpus):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(
        corpus, trainers.BpeTrainer(vocab_size=300, special_tokens=["<unk>", "<pad>", "</s>"])
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", pad_token="<pad>", eos_token="</s>"
    )


def main():
    parser = HfArgumentParser((ModelArguments, DataArguments, TrainingArguments))
    if len(sys.argv) == 2 and sys.argv[1].endswith(".json"):
        model_args, data_args, training_args = parser.parse_json_file(json_file=sys.argv[1])
    else:
        model_args, data_args, training_args = parser.parse_args_into_dataclasses()
    corpus = texts(data_args.num_texts)
    tokenizer = train_tokenizer(corpus)

    def tokenize(examples):
        return tokenizer(examples["text"], truncation=True, max_length=data_args.block_size)

    raw = Dataset.from_dict({"text": corpus}).train_test_split(test_size=0.05, seed=0)
    tokenized = raw.map(tokenize, batched=True, remove_columns=["text"])
    tokenized = tokenized.remove_columns(
        [name for name in tokenized["train"].column_names if name == "token_type_ids"]
    )
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=model_args.hidden_size,
        intermediate_size=2 * model_args.hidden_size,
        num_hidden_layers=model_args.num_hidden_layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
    )
    trainer = Trainer(
        model=LlamaForCausalLM(config),
        args=training_args,
        train_dataset=tokenized["train"],
        eval_dataset=tokenized["test"],
        processing_class=tokenizer,
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
    )
    result = trainer.train()
    trainer.save_model()
    trainer.log_metrics("train", result.metrics)


if __name__ == "__main__":
    main()
