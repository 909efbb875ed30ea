"""In the style of TRL's dpo.py: pairs of answers, options on the command line."""

import random
from dataclasses import dataclass

from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import HfArgumentParser, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer


@dataclass
class ScriptArguments:
    num_pairs: int = 800


WORDS = ["model", "batch", "step", "layer", "token", "loss", "rate", "size", "memory", "time"]


def pairs(count):
    rng = random.Random(0)

    def text(shortest, longest):
        return " ".join(rng.choices(WORDS, k=rng.randint(shortest, longest)))

    rows = [(text(3, 20), " " + text(3, 30), " " + text(3, 30)) for _ in range(count)]
    return Dataset.from_dict(
        dict(zip(("prompt", "chosen", "rejected"), zip(*rows, strict=True), strict=True))
    )


def train_tokenizer(corpus):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(
        corpus, trainers.BpeTrainer(vocab_size=300, special_tokens=["<unk>", "<pad>", "</s>"])
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", pad_token="<pad>", eos_token="</s>"
    )


def small_model(tokenizer):
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=256,
        )
    )


if __name__ == "__main__":
    parser = HfArgumentParser((ScriptArguments, DPOConfig))
    script_args, training_args = parser.parse_args_into_dataclasses()
    dataset = pairs(script_args.num_pairs)
    tokenizer = train_tokenizer(dataset["prompt"])
    trainer = DPOTrainer(
        model=small_model(tokenizer),
        ref_model=small_model(tokenizer),
        args=training_args,
        train_dataset=dataset,
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model(training_args.output_dir)
