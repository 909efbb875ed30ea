"""Made-up data in the formats that public scripts read; the list of scripts names these functions.

Each writes below a folder, and returns nothing. Packages that only some need are imported inside.
"""

from __future__ import annotations

import io
import json
import pickle
import random
import struct
import tarfile
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

WORDS = ["model", "batch", "step", "layer", "token", "loss", "rate", "size", "memory", "time"]


def _parent(folder: Path, name: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


# images --------------------------------------------------------------------------------------


def mnist(folder: Path, path: str, num: int = 60_000) -> None:
    """MNIST's four files, with noise for digits."""
    generator = np.random.default_rng(0)
    for part, count in (("train", num), ("t10k", num // 6)):
        pixels = generator.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        digits = generator.integers(0, 10, count, dtype=np.uint8)
        raw = f"{path}/MNIST/raw/{part}"
        images = struct.pack(">IIII", 0x803, count, 28, 28) + pixels.tobytes()
        labels = struct.pack(">II", 0x801, count) + digits.tobytes()
        _parent(folder, f"{raw}-images-idx3-ubyte").write_bytes(images)
        _parent(folder, f"{raw}-labels-idx1-ubyte").write_bytes(labels)


def cifar(folder: Path, path: str, num_classes: int, num: int = 10_000) -> None:
    """CIFAR-10 or CIFAR-100 as its Python archive holds it."""
    generator = np.random.default_rng(0)
    ten = num_classes == 10
    base = f"{path}/{'cifar-10-batches-py' if ten else 'cifar-100-python'}"
    parts = {f"data_batch_{n}": num // 5 for n in range(1, 6)} if ten else {"train": num}
    parts |= {"test_batch" if ten else "test": num // 5}
    for name, count in parts.items():
        part = {
            "data": generator.integers(0, 256, (count, 3072), dtype=np.uint8),
            "labels" if ten else "fine_labels": generator.integers(0, num_classes, count).tolist(),
        }
        _parent(folder, f"{base}/{name}").write_bytes(pickle.dumps(part))
    names = {
        "label_names" if ten else "fine_label_names": [f"kind {n}" for n in range(num_classes)]
    }
    _parent(folder, f"{base}/{'batches.meta' if ten else 'meta'}").write_bytes(pickle.dumps(names))


def images(
    folder: Path, path: str, num: int, size: int, *, kinds: int = 0, suffix: str = "png"
) -> None:
    """Pictures of noise, in a folder a kind where there are kinds."""
    from PIL import Image

    generator = np.random.default_rng(0)
    for n in range(num):
        below = f"kind{n % kinds}/" if kinds else ""
        pixels = generator.integers(0, 256, (size, size, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(_parent(folder, f"{path}/{below}{n:05d}.{suffix}"))


def masks(folder: Path, path: str, num: int, size: int, suffix: str) -> None:
    """For each of `images` a mask of two values, its name with `suffix`."""
    from PIL import Image

    generator = np.random.default_rng(1)
    for n in range(num):
        pixels = generator.integers(0, 2, (size, size), dtype=np.uint8) * 255
        Image.fromarray(pixels).save(_parent(folder, f"{path}/{n:05d}{suffix}"))


# text ----------------------------------------------------------------------------------------


def text(folder: Path, path: str, num_words: int, line: int = 12, before: str = "") -> None:
    """Lines of made-up words, after what must stand in it."""
    generator = random.Random(path)
    lines = (" ".join(generator.choices(WORDS, k=line)) for _ in range(num_words // line))
    _parent(folder, path).write_text(before + "\n".join(lines) + "\n")


def tokens(folder: Path, path: str, num: int) -> None:
    """Tokens of 16 bits after the header of llm.c."""
    header = np.zeros(256, dtype=np.int32)
    header[:3] = 20240520, 1, num
    ids = np.random.default_rng(0).integers(0, 50_000, num, dtype=np.uint16)
    _parent(folder, path).write_bytes(header.tobytes() + ids.tobytes())


def json_lines(folder: Path, path: str, num: int, **columns: Any) -> None:
    """A line a sample; a column that is `text` gets words, `[0, 1]` one of these."""
    generator = random.Random(path)

    def value(kind: Any) -> Any:
        if kind == "text":
            return " ".join(generator.choices(WORDS, k=generator.randint(8, 60)))
        return generator.choice(kind)

    lines = (
        json.dumps({name: value(kind) for name, kind in columns.items()} | {"idx": n})
        for n in range(num)
    )
    _parent(folder, path).write_text("\n".join(lines) + "\n")


def file(folder: Path, path: str, content: str) -> None:
    """A file that the list writes out."""
    _parent(folder, path).write_text(content)


def tokenizer(folder: Path, path: str, kind: str) -> None:
    """A word tokenizer, as BERT or Llama takes it."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    vocabulary = {word: n for n, word in enumerate([*special, *WORDS])}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "eos_token": "[SEP]"}
    if kind == "bert":
        names |= {"cls_token": "[CLS]", "sep_token": "[SEP]"}
        made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    PreTrainedTokenizerFast(tokenizer_object=made, **names).save_pretrained(folder / path)


def bert(folder: Path, path: str) -> None:
    """A BERT of two layers with random weights, and its tokenizer."""
    from transformers import BertConfig, BertForSequenceClassification

    settings = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = BertConfig(vocab_size=64, intermediate_size=128, **settings)
    BertForSequenceClassification(config).save_pretrained(folder / path)
    tokenizer(folder, path, "bert")


def llama(folder: Path, path: str) -> None:
    """A Llama of two layers with random weights, and its tokenizer."""
    from transformers import LlamaConfig, LlamaForCausalLM

    settings = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = LlamaConfig(vocab_size=64, intermediate_size=128, **settings)
    LlamaForCausalLM(config).save_pretrained(folder / path)
    tokenizer(folder, path, "llama")


# tables and graphs ---------------------------------------------------------------------------


def hourly_table(folder: Path, path: str, num: int, columns: list[str]) -> None:
    """Noise by the hour, as the tables of electricity transformers have it."""
    generator = np.random.default_rng(0)
    lines = [",".join(["date", *columns])]
    for n, row in enumerate(generator.normal(size=(num, len(columns)))):
        date = datetime(2016, 7, 1) + timedelta(hours=n)  # noqa: DTZ001  the tables name no zone
        lines.append(",".join([f"{date:%Y-%m-%d %H:%M:%S}", *(f"{value:.4f}" for value in row)]))
    _parent(folder, path).write_text("\n".join(lines) + "\n")


def graphs(folder: Path, path: str, name: str, num: int, kinds: int = 7) -> None:
    """Rings as a TU data set, each of 10 to 28 nodes."""
    generator = random.Random(0)
    edges, indicator, nodes, labels = [], [], [], []
    for n in range(num):
        first, count = len(nodes) + 1, generator.randint(10, 28)
        for k in range(count):
            here, there = first + k, first + (k + 1) % count
            edges += [f"{here}, {there}", f"{there}, {here}"]
            indicator.append(str(n + 1))
            nodes.append(str(k % kinds))
        labels.append(str(generator.choice([-1, 1])))
    parts = {"A": edges, "graph_indicator": indicator, "node_labels": nodes, "graph_labels": labels}
    for part, lines in parts.items():
        _parent(folder, f"{path}/{name}/raw/{name}_{part}.txt").write_text("\n".join(lines) + "\n")


def cora(folder: Path, path: str, num: int = 2708) -> None:
    """The archive of a citation graph: a line a paper, a line a citation."""
    generator = random.Random(0)
    papers = [
        " ".join([str(n), *generator.choices("01", weights=(60, 1), k=200), f"kind{n % 7}"])
        for n in range(num)
    ]
    cites = [f"{n} {other}" for n in range(num) if (other := generator.randrange(num)) != n]
    with tarfile.open(_parent(folder, path), "w:gz") as archive:
        for name, lines in (("content", papers), ("cites", cites)):
            content = ("\n".join(lines) + "\n").encode()
            member = tarfile.TarInfo(f"cora/cora.{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
