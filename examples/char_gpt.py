"""Train a small GPT, byte by byte, on the source code of Python's own standard library.

Nothing is downloaded: the text is read from the folder of the running interpreter.

    python char_gpt.py                      # about two minutes on a laptop's CPU
    python char_gpt.py --batch-size 64 --schedule onecycle --out gpt.pt
"""

import argparse
import sysconfig
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.utils.data import DataLoader, Dataset

VOCABULARY = 256  # every byte is a token


def read_text(limit):
    """The standard library's top-level modules in alphabetical order, up to `limit` bytes."""
    text = bytearray()
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        text += path.read_bytes()
        if len(text) >= limit:
            break
    return torch.frombuffer(text[:limit], dtype=torch.uint8)


class Windows(Dataset):
    """Windows of `block` bytes; the target of each byte is the byte after it."""

    def __init__(self, text, block, stride):
        self.text, self.block, self.stride = text, block, stride

    def __len__(self):
        return (len(self.text) - self.block - 1) // self.stride + 1

    def __getitem__(self, index):
        start = index * self.stride
        window = self.text[start : start + self.block + 1].long()
        return window[:-1], window[1:]


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout)
        )

    def attend(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        y = scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x):
        x = x + self.attend(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, block, width, layers, heads, dropout):
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, width)
        self.position = nn.Parameter(torch.zeros(block, width))
        self.blocks = nn.Sequential(*[Block(width, heads, dropout) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        self.apply(self.initialise)
        self.head.weight = self.token.weight

    @staticmethod
    def initialise(module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, tokens):
        x = self.token(tokens) + self.position[: tokens.shape[1]]
        return self.head(self.norm(self.blocks(x)))


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, help="stop after this many steps")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, ...")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--schedule", choices=["none", "cosine", "onecycle"], default="cosine")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--block", type=int, default=64, help="length of the context in bytes")
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--text-bytes", type=int, default=1_000_003)
    parser.add_argument("--out", type=Path, help="save a checkpoint here after training")
    return parser.parse_args()


def make_scheduler(name, optimizer, lr, total):
    if name == "cosine":
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total)
    if name == "onecycle":
        return torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, total)
    return None


def main():
    args = parse_args()
    torch.manual_seed(0)
    device = args.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"

    dataset = Windows(read_text(args.text_bytes), args.block, stride=args.block)
    loader = DataLoader(
        dataset,
        batch_size=args.batch_size,
        shuffle=True,
        pin_memory=device.startswith("cuda"),
    )
    model = GPT(args.block, args.width, args.layers, args.heads, args.dropout).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.1)
    total = args.steps or len(loader) * args.epochs
    scheduler = make_scheduler(args.schedule, optimizer, args.lr, total)
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{parameters / 1e6:.2f} M parameters, {len(dataset)} windows, {total} steps on {device}")

    step, start = 0, time.perf_counter()
    while step < total:
        for tokens, targets in loader:
            tokens = tokens.to(device, non_blocking=True)
            targets = targets.to(device, non_blocking=True)
            logits = model(tokens)
            loss = cross_entropy(logits.flatten(0, 1), targets.flatten())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if scheduler is not None:
                scheduler.step()
            step += 1
            if step % 100 == 0 or step == total:
                seconds = time.perf_counter() - start
                print(f"step {step:5d}  loss {loss.item():.3f}  {seconds:.1f} s", flush=True)
            if step >= total:
                break

    if args.out is not None:
        torch.save(model.state_dict(), args.out)
        print(f"saved {args.out}")


if __name__ == "__main__":
    main()
