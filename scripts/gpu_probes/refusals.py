"""Probe: in which words is memory refused, and does the product recognise them?"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from harness import Finding, child, left_s, main, raised

QUESTION = "In which words is memory refused, and are all of them recognised?"
TOGETHER = 5
"""Processes at the same time, of the cases that do not need the whole device."""
CASE_S = 25.0


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--case", help="the child: provokes this one")
    parser.add_argument("--only", help="cases by commas")


def probe(finding: Finding, given: argparse.Namespace) -> None:
    from refusal_cases import CASES

    if given.case:
        finding.keep(**provoked(given.case, given.device))
        finding.answer = "provoked"
        return
    names = given.only.split(",") if given.only else list(CASES)
    if given.device != "cuda":
        for name in names:
            if not CASES[name].on_cpu:
                finding.lack(name, "no CUDA device")
        names = [name for name in names if CASES[name].on_cpu]
    texts: dict[str, dict[str, Any]] = {}

    def provoke(name: str) -> None:
        words = [str(Path(__file__)), "--case", name, "--device", given.device]
        said = child(words, min(CASE_S, left_s(given)), environment=CASES[name].environment)
        texts[name] = {"expected": CASES[name].refusal, **(said.get("numbers") or said)}
        finding.keep(texts=dict(sorted(texts.items())))

    with ThreadPoolExecutor(TOGETHER) as pool:
        list(pool.map(provoke, [name for name in names if not CASES[name].fills]))
    for name in (name for name in names if CASES[name].fills):
        provoke(name)
    judge(finding, texts)


def provoked(name: str, device: str) -> dict[str, Any]:
    """What the case raised, and what the product makes of it."""
    from batchadvisor.probes.process.faults import is_out_of_memory, memory_is_short
    from refusal_cases import CASES, Heard

    provoke: Callable[[str], Any] = CASES[name].provoke
    try:
        done = provoke(device)
    except Exception as refusal:  # noqa: BLE001  the text is what is asked for
        short = memory_is_short()
        error = RuntimeError(str(refusal)) if isinstance(refusal, Heard) else refusal
        return {
            "raised": raised(error),
            "memory_is_short": short,
            "recognised": is_out_of_memory(error, short=short),
            "recognised_by_words_alone": is_out_of_memory(error),
        }
    return {"raised": None, "returned": str(done)[:200]}


def judge(finding: Finding, texts: dict[str, dict[str, Any]]) -> None:
    """Every refusal recognised, and nothing else."""
    missed, mistaken, silent = [], [], []
    for name, text in texts.items():
        if "recognised" not in text:
            reason = text.get("error") or f"nothing was raised: {text.get('returned')}"
            silent.append(name)
            finding.lack(name, f"{reason} {str(text.get('stderr', ''))[-300:]}".strip())
        elif text["expected"] is True and not text["recognised"]:
            missed.append(name)
        elif text["expected"] is False and text["recognised"]:
            mistaken.append(name)
    answered = len(texts) - len(silent)
    # A device that is full counts as short of memory, and so does one that refused us before.
    finding.keep(
        recognised_only_on_a_full_device=[
            name
            for name, text in texts.items()
            if text.get("recognised") and not text.get("recognised_by_words_alone", True)
        ]
    )
    if not answered:
        return
    finding.answer = (
        f"{answered} of {len(texts)} cases raised; not recognised: {', '.join(missed) or 'none'}; "
        f"taken for a refusal: {', '.join(mistaken) or 'none'}; nothing raised: "
        f"{', '.join(silent) or 'none'}."
    )
    finding.assume(
        "probes/process/faults.py: _MEMORY_TEXTS, _REFUSED, _PERHAPS, NEARLY_FULL",
        "every refusal of memory is recognised, and no other error",
        not missed and not mistaken,
        json.dumps({"missed": missed, "mistaken": mistaken}),
    )


if __name__ == "__main__":
    os.environ.setdefault("TORCH_SHOW_CPP_STACKTRACES", "0")
    sys.exit(main(probe, QUESTION, options=options))
