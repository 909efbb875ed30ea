"""Trainings whose memory torch's own CUDA code was asked for; see `scripts/software_gpu`."""

import contextlib

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tests.fake_step.small_models import Lora, Residual

WORDS, LENGTH, WIDTH, HEADS, CLASSES = 512, 128, 128, 4, 64
SIZE = 48
CAPACITY = 4 << 30
"""Bytes of a GPU that the largest batch sizes are sought for."""


class Attention(nn.Module):
    """With torch's fused kernels, or by the whole matrix of scores."""

    def __init__(self, how, dropout):
        super().__init__()
        self.how, self.p = how, dropout
        num_keys = 2 if how == "grouped" else HEADS
        self.query = nn.Linear(WIDTH, WIDTH)
        self.keys = nn.Linear(WIDTH, 2 * num_keys * WIDTH // HEADS)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.distances = nn.Embedding(2 * LENGTH, HEADS) if how == "distances" else None

    def forward(self, x):
        num, length, _ = x.shape
        query = self.query(x).view(num, length, HEADS, -1).transpose(1, 2)
        parts = self.keys(x).view(num, length, 2, -1, WIDTH // HEADS)
        key, value = parts.permute(2, 0, 3, 1, 4)
        p = self.p if self.training else 0.0
        if self.how == "scores":
            scores = (query @ key.transpose(-2, -1)) * (WIDTH // HEADS) ** -0.5
            mixed = functional.dropout(scores.softmax(-1), p) @ value
        elif self.how in ("mask", "bias"):
            mask = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
            if self.how == "bias":
                mask = torch.zeros(length, length, device=x.device).masked_fill(~mask, -1e4)
            mixed = functional.scaled_dot_product_attention(query, key, value, mask, p)
        elif self.distances is not None:  # as in T5: no fused kernel takes a bias that lies so
            places = torch.arange(length, device=x.device)
            bias = self.distances(places[:, None] - places + length).permute(2, 0, 1).unsqueeze(0)
            mixed = functional.scaled_dot_product_attention(query, key, value, bias, p)
        else:
            mixed = functional.scaled_dot_product_attention(
                query, key, value, None, p, is_causal=True, enable_gqa=self.how == "grouped"
            )
        return self.out(mixed.transpose(1, 2).reshape(num, length, WIDTH))


class Block(nn.Module):
    """A pre-norm transformer block."""

    def __init__(self, how="causal", dropout=0.0, norm=nn.LayerNorm):
        super().__init__()
        self.before, self.between = norm(WIDTH), norm(WIDTH)
        self.attention = Attention(how, dropout)
        self.wide = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(dropout)
        )

    def forward(self, x):
        x = x + self.attention(self.before(x))
        return x + self.wide(self.between(x))


class Gpt(nn.Module):
    """Predicts the next token of each."""

    def __init__(self, *, tied=False, again=False, turned=False, **block):
        super().__init__()
        self.embed, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block(**block) for _ in range(3))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
        self.again, self.turned = again, turned
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, x):
        x = self.embed(x) + self.places.weight
        if self.turned:  # as the tokens of a picture, whose channels come first
            x = x.transpose(1, 2).contiguous().transpose(1, 2)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.again else block(x)
        return self.head(self.norm(x)).flatten(0, 1)


class Encoder(nn.Module):
    """Torch's own layers; a class for each text."""

    def __init__(self, dropout=0.0, *, first=True):
        super().__init__()
        self.first = first
        self.embed = nn.Embedding(WORDS, WIDTH)
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, 4 * WIDTH, dropout, "gelu", batch_first=first, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        x = self.embed(x if self.first else x.T)
        return self.head(self.blocks(x)).mean(1 if self.first else 0)


class Translator(nn.Module):
    """An encoder and a decoder."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.both = nn.Transformer(WIDTH, HEADS, 2, 2, 4 * WIDTH, 0.1, batch_first=True)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH, device=x.device)
        embedded = self.embed(x)
        mixed = self.both(embedded, embedded, tgt_mask=mask, tgt_is_causal=True)
        return self.head(mixed).flatten(0, 1)


class Unet(nn.Module):
    """Down and up again, with bridges."""

    def __init__(self):
        super().__init__()
        self.first, self.down = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 32, 3, 2, 1)
        self.deep, self.up = nn.Conv2d(32, 64, 3, 2, 1), nn.ConvTranspose2d(64, 32, 2, 2)
        self.last = nn.ConvTranspose2d(64, 16, 2, 2)
        self.head = nn.Conv2d(32, CLASSES, 1)

    def forward(self, x):
        first = functional.gelu(self.first(x))
        down = functional.gelu(self.down(first))
        x = torch.cat([down, self.up(functional.gelu(self.deep(down)))], 1)
        return self.head(torch.cat([first, self.last(x)], 1)).mean((2, 3))


def resnet():
    first = [nn.Conv2d(3, 32, 7, 2, 3, bias=False), nn.BatchNorm2d(32), nn.ReLU(inplace=True)]
    last = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, CLASSES)]
    return nn.Sequential(*first, Residual(32, 64, 2), Residual(64, 128, 2), *last)


class ChannelsLast(nn.Sequential):
    """Tensor cores take it as it lies."""

    def __init__(self, inner):
        super().__init__(inner.to(memory_format=torch.channels_last))

    def forward(self, x):
        return super().forward(x.contiguous(memory_format=torch.channels_last))


def perceptron():
    layers = []
    for _ in range(4):
        layers += [nn.Linear(512, 512), nn.GroupNorm(8, 512), nn.SiLU(), nn.Dropout(0.1)]
    return nn.Sequential(nn.Linear(256, 512), *layers, nn.Linear(512, CLASSES))


def next_tokens(num):
    whole = torch.randint(WORDS, (num, LENGTH + 1))
    return whole[:, :-1].contiguous(), whole[:, 1:].flatten()


def texts(num):
    return torch.randint(WORDS, (num, LENGTH)), torch.randint(CLASSES, (num,))


def images(num):
    return torch.randn(num, 3, 64, 64), torch.randint(CLASSES, (num,))


def rows(num):
    return torch.randn(64 * num, 256), torch.randint(CLASSES, (64 * num,))


def smoothed(out, target):
    return functional.cross_entropy(out, target, label_smoothing=0.1)


def nll(out, target):
    return functional.nll_loss(out.log_softmax(-1), target)


def binary(out, target):
    wanted = functional.one_hot(target, out.shape[-1]).float()
    return functional.binary_cross_entropy_with_logits(out, wanted)


def squares(out, target):
    return functional.mse_loss(out.softmax(-1), functional.one_hot(target, out.shape[-1]).float())


MODELS = {
    "gpt": (Gpt, next_tokens, functional.cross_entropy),
    "gpt, tied": (lambda: Gpt(tied=True), next_tokens, functional.cross_entropy),
    "gpt, dropout": (lambda: Gpt(dropout=0.1), next_tokens, functional.cross_entropy),
    "gpt, checkpointed": (lambda: Gpt(again=True), next_tokens, functional.cross_entropy),
    "gpt, mask": (lambda: Gpt(how="mask"), next_tokens, functional.cross_entropy),
    "gpt, bias": (lambda: Gpt(how="bias", dropout=0.1), next_tokens, functional.cross_entropy),
    "gpt, grouped": (lambda: Gpt(how="grouped"), next_tokens, functional.cross_entropy),
    "gpt, scores": (lambda: Gpt(how="scores", dropout=0.1), next_tokens, functional.cross_entropy),
    "distances": (lambda: Gpt(how="distances"), next_tokens, functional.cross_entropy),
    "distances, dropout": (
        lambda: Gpt(how="distances", dropout=0.1),
        next_tokens,
        functional.cross_entropy,
    ),
    "gpt, RMSNorm": (lambda: Gpt(norm=nn.RMSNorm), next_tokens, functional.cross_entropy),
    "turned": (lambda: Gpt(turned=True), next_tokens, functional.cross_entropy),
    "gpt, smoothed": (Gpt, next_tokens, smoothed),
    "gpt, nll": (Gpt, next_tokens, nll),
    "encoder": (Encoder, texts, functional.cross_entropy),
    "encoder, dropout": (lambda: Encoder(0.1), texts, functional.cross_entropy),
    "encoder, length first": (lambda: Encoder(first=False), texts, binary),
    "translator": (Translator, next_tokens, functional.cross_entropy),
    "perceptron": (perceptron, rows, functional.cross_entropy),
    "perceptron, squares": (perceptron, rows, squares),
    "LoRA": (Lora, rows, functional.cross_entropy),
    "resnet": (resnet, images, functional.cross_entropy),
    "resnet, channels last": (lambda: ChannelsLast(resnet()), images, functional.cross_entropy),
    "unet": (Unet, images, functional.cross_entropy),
    "unet, channels last": (lambda: ChannelsLast(Unet()), images, functional.cross_entropy),
}
"""A model, the inputs and targets of a batch, and a loss."""
OPTIMIZERS = {
    "AdamW": lambda trained: torch.optim.AdamW(trained, lr=0.01),
    "SGD": lambda trained: torch.optim.SGD(trained, lr=0.01, momentum=0.9),
    "RMSprop": lambda trained: torch.optim.RMSprop(trained, lr=0.01),
    "Adafactor": lambda trained: torch.optim.Adafactor(trained, lr=0.01),
}
TYPES = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
CASES = {
    *((model, precision, "AdamW") for model in MODELS for precision in ("fp32", "bf16")),
    *((model, "fp16", "SGD") for model in ("gpt", "gpt, scores", "encoder", "perceptron")),
    *(("gpt", "fp32", optimizer) for optimizer in OPTIMIZERS),
    *(("LoRA", "bf16", optimizer) for optimizer in OPTIMIZERS),
}
LIMITED = {
    *((model, "fp32", "AdamW") for model in MODELS if not model.startswith("LoRA")),
    ("gpt", "bf16", "AdamW"),
    ("encoder", "fp16", "SGD"),
    ("translator", "bf16", "AdamW"),
}
"""Of these the largest batch is sought."""


def batch_of(model, size, device):
    """Inputs and targets of a batch."""
    return tuple(each.to(device) for each in MODELS[model][1](size))


def training(model, precision, optimizer, device):
    """The optimizer, and a function that makes a step on a batch."""
    torch.manual_seed(0)
    build, _, loss = MODELS[model]
    network = build().to(device)
    trained = [p for p in network.parameters() if p.requires_grad]
    chosen = OPTIMIZERS[optimizer](trained)

    def step(given):
        inputs, targets = given
        chosen.zero_grad()
        context = contextlib.nullcontext()
        if TYPES[precision] is not None:
            context = torch.autocast("cuda", TYPES[precision])
        with context:
            cost = loss(network(inputs), targets)
        cost.backward()
        nn.utils.clip_grad_norm_(trained, 1.0)
        cost.item()
        chosen.step()

    return chosen, step
