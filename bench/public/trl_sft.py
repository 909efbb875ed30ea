"""In the style of TRL's sft.py: TrlParser over a YAML file, LoRA by PEFT, chat data."""

import random
from dataclasses import dataclass

from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer, TrlParser


@dataclass
class ScriptArguments:
    num_texts: int = 1000
    lora_r: int = 8


def texts(count):
    rng = random.Random(0)
    words = ["model", "batch", "step", "layer", "token", "loss", "rate", "size", "memory", "time"]
    return [" ".join(rng.choices(words, k=rng.randint(4, 60))) for _ in range(count)]


def train_tokenizer(corpus):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(
        corpus, trainers.BpeTrainer(vocab_size=300, special_tokens=["<unk>", "<pad>", "</s>"])
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", pad_token="<pad>", eos_token="</s>"
    )


def main(script_args, training_args):
    corpus = texts(script_args.num_texts)
    tokenizer = train_tokenizer(corpus)
    model = LlamaForCausalLM(
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
    dataset = Dataset.from_dict({"text": corpus}).train_test_split(test_size=0.05, seed=0)
    trainer = SFTTrainer(
        model=model,
        args=training_args,
        train_dataset=dataset["train"],
        eval_dataset=dataset["test"] if training_args.eval_strategy != "no" else None,
        processing_class=tokenizer,
        peft_config=LoraConfig(r=script_args.lora_r, target_modules=["q_proj", "v_proj"]),
    )
    trainer.train()
    trainer.save_model(training_args.output_dir)


if __name__ == "__main__":
    parser = TrlParser((ScriptArguments, SFTConfig))
    main(*parser.parse_args_and_config())
