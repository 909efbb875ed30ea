"""Trains a model of timm or transformers on random samples, as short scripts do.

python bench/on_a_card/training.py resnet50 --batch-size 64
python bench/on_a_card/training.py gpt2 --precision bf16 --optimizer adamw --length 1024
"""

import argparse
import sys
from pathlib import Path

import torch
from torch import nn

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("model")
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--precision", choices=("fp32", "bf16", "fp16"), default="fp32")
parser.add_argument("--optimizer", choices=("sgd", "adamw"), default="sgd")
parser.add_argument("--length", type=int, default=0, help="tokens of a text (0: of the model)")
parser.add_argument("--channels-last", action="store_true")
parser.add_argument("--benchmark", action="store_true", help="cuDNN tries all its kernels")
parser.add_argument("--checkpointing", action="store_true")
args = parser.parse_args()

torch.manual_seed(0)
torch.backends.cudnn.benchmark = args.benchmark
TEXTS = {
    "gpt2": {"kind": "GPT2", "length": 1024},
    "bert-base": {"kind": "Bert", "length": 512},
    "llama-1b": {
        "kind": "Llama", "length": 1024, "hidden_size": 2048, "num_hidden_layers": 16,
        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 8192,
        "vocab_size": 32000,
    },
    "t5-small": {"kind": "T5", "length": 512, "decoder_start_token_id": 0},
    "whisper-tiny": {"kind": "Whisper", "length": 448},
}  # fmt: skip

if args.model in TEXTS:
    import transformers

    shape = dict(TEXTS[args.model])
    kind, length = shape.pop("kind"), args.length or shape["length"]
    shape.pop("length")
    config = getattr(transformers, f"{kind}Config")(**shape)
    head = {"Bert": "ForMaskedLM", "GPT2": "LMHeadModel", "Llama": "ForCausalLM"}
    model = getattr(transformers, kind + head.get(kind, "ForConditionalGeneration"))(config)
    if args.checkpointing:
        model.gradient_checkpointing_enable()
    pictures = None
else:
    try:
        import torchvision  # noqa: F401  timm asks for it, though not for its models
    except ImportError:
        sys.path.append(str(Path(__file__).resolve().parents[1] / "published"))
        import without_torchvision

        without_torchvision.install()
    import timm

    model = timm.create_model(args.model)
    if args.checkpointing:
        model.set_grad_checkpointing()
    pictures = model.default_cfg["input_size"]

form = torch.channels_last if args.channels_last else torch.contiguous_format
device = "cuda" if torch.cuda.is_available() else "cpu"
model = model.to(device, memory_format=form).train()
if args.optimizer == "sgd":
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
else:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
half = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(args.precision, torch.bfloat16)
scaler = torch.amp.GradScaler(device, enabled=args.precision == "fp16" and device == "cuda")
loss_of = nn.CrossEntropyLoss()


class Samples(torch.utils.data.Dataset):
    """More than any batch takes."""

    def __len__(self):
        return 1 << 20

    def __getitem__(self, number):
        if pictures is None:
            tokens = torch.full((length,), number % 1000)
            if args.model == "whisper-tiny":
                return torch.zeros(80, 3000), tokens
            return tokens, tokens
        return torch.zeros(()).expand(pictures), number % model.num_classes


loader = torch.utils.data.DataLoader(Samples(), batch_size=args.batch_size, drop_last=True)
for step, batch in enumerate(loader):
    samples, target = (each.to(device) for each in batch)
    if pictures is not None:
        samples = samples.contiguous(memory_format=form)
    with torch.autocast("cuda", half, enabled=args.precision != "fp32"):
        if pictures is None:
            loss = model(samples, labels=target).loss
        else:
            loss = loss_of(model(samples), target)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if step % 10 == 0:
        print(step, loss.item())
