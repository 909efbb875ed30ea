"""The peaks of language models at given sizes: fake steps beside what others measured on a GPU.

    python bench/peaks_against_gpus.py ROWS.csv
    python bench/peaks_against_gpus.py ROWS.csv --models bert-large

Rows of BERT-large (transformers' page on one GPU, 2022, a V100; bytes of the driver without the
context that the page states: what torch reserved) and of LitGPT's tables (October 2023, an A100;
what torch allocated at most). Each is a script of bench/language with batches on fake tensors, in
a process of its own. It needs transformers and litgpt.

These are bytes, not seconds: other work on the machine changes only how long it takes.
"""

from __future__ import annotations

import argparse
import functools
import re
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from batchadvisor.features.estimate.fit.first_steps import first_steps
from batchadvisor.features.estimate.fit.forecast import reserved_bytes
from common import HERE, RESULTS, Results, header, say, table
from estimate_against_gpus import PEAKS, FakeLoader, in_own_process, on_fakes, rows_of

FOLDER = HERE / "language"
MIB, GB = 1 << 20, 10**9
CONTEXT = re.compile(r"(\d+) MiB are the CUDA context")
SIZES = re.compile(r"(\d+)=([\d.]+) GB")
MODELS = {
    "StableLM Alpha 3 B": "stablelm-base-alpha-3b",
    "Llama 2 7 B": "Llama-2-7b-hf",
    "Llama 2 13 B": "Llama-2-13b-hf",
}
TECHNIQUES = {
    "Finetuning with LoRA on 1 GPU": "lora",
    "Finetuning with Adapter on 1 GPU": "adapter",
    "Adapter v2 on 1 GPU": "adapter_v2",
}


class Peak(NamedTuple):
    """A published peak.

    Attributes:
        words: the script of bench/language and its arguments.
        reserved: whether it is what torch reserved, rather than allocated.
    """

    row: str
    words: tuple[str, ...]
    size: int
    published: int
    reserved: bool


def peaks_of(row: dict[str, str]) -> list[Peak]:
    """The peaks of a row that a script of ours can repeat."""
    if row["id"].startswith("hf-bertlarge") and "8-bit" not in row["technique"]:
        context, used = CONTEXT.search(row["peak_kind"]), row["peak"].split()[0]
        assert context is not None
        published = (int(used) - int(context[1])) * MIB
        words = ("bert_training.py", row["technique"])
        return [Peak(row["id"], words, int(row["largest_fit"]), published, reserved=True)]
    if "resource-tables" in row["source"] and row["dtype"] == "bf16-true" and row["ranks"] == "1":
        length = row["seq_or_img"].split()[-2]
        words = (
            "adapter_training.py",
            MODELS[row["model"]],
            TECHNIQUES[row["technique"]],
            length,
        )
        return [
            Peak(row["id"], words, int(size), int(float(gb) * GB), reserved=False)
            for size, gb in SIZES.findall(row["evidence"])
        ]
    return []


class FixedLoader(FakeLoader):
    """The same at sizes that are given."""

    sizes: Sequence[int] = ()

    def __iter__(self) -> Iterator[Any]:
        return self.batches(iter(self.sizes), sys._getframe(1))  # noqa: SLF001


def estimated(words: Sequence[str], sizes: Sequence[int]) -> dict[str, list[int]]:
    """By size, the most bytes of tensors and what torch would reserve for them."""
    FixedLoader.sizes = sizes
    sys.path.insert(0, str(HERE / "stand_ins" / "torchvision"))  # none fits the local torch
    loader = on_fakes(FOLDER / words[0], words[1:], FixedLoader)
    return {
        str(trial.batch_size): [trial.peak_bytes, reserved_bytes(first_steps(asked, lived))]
        for trial, asked, lived in zip(loader.trials, loader.requests, loader.held, strict=True)
    }


def report(data: dict[str, Any]) -> str:
    """The table, and what it says in all."""
    rows, shares = [], []
    for each in data["peaks"]:
        made = each.get("estimated")
        share = made / each["published"] - 1 if made else None
        if share is not None:
            shares.append(share)
        rows.append(
            [
                " ".join(each["words"]),
                each["size"],
                "reserved" if each["reserved"] else "allocated",
                f"{each['published'] / GB:.2f}",
                f"{made / GB:.2f}" if made else "-",
                f"{share:+.1%}" if share is not None else "-",
            ]
        )
    headings = ["script", "size", "kind", "published GB", "estimated GB", "off by"]
    text = table(headings, rows)
    if shares:
        within = sum(abs(share) <= 0.05 for share in shares)
        text += (
            f"\n{len(shares)} peaks; off by {min(shares):+.1%} to {max(shares):+.1%}, "
            f"median {statistics.median(shares):+.1%}; {within} within 5 %"
        )
    return "\n".join([*header(data, "peaks of fake steps beside published ones"), text])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("rows", type=Path, help="CSV file of published rows.")
    parser.add_argument("--models", nargs="*", default=[], help="Parts of ids; only these.")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    peaks = [peak for row in rows_of(options.rows) for peak in peaks_of(row)]
    if options.models:
        peaks = [each for each in peaks if any(part in each.row for part in options.models)]
    results = Results(options.results, PEAKS)
    done = results.data.setdefault("peaks", [])
    for words in dict.fromkeys(each.words for each in peaks):
        mine = [each for each in peaks if each.words == words]
        say(" ".join(words))
        made = in_own_process(functools.partial(estimated, words, [each.size for each in mine]))
        for each in mine:
            known = made.get(str(each.size))
            value = {"problem": made.get("problem", "no such size")}
            if known:
                value = {"estimated": known[int(each.reserved)], "both": known}
            done.append({**each._asdict(), **value})
        results.save()
    results.data["state"] = "finished"
    results.finish(report(results.data))


if __name__ == "__main__":
    main()
