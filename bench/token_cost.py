"""What counting tokens costs, beside collating the batch that is counted.

    python bench/token_cost.py --rows 64 --length 2048 --rounds 200

Each round collates a batch of padded sequences (`torch.stack` of its rows), looks at its parts as a
timed step does (`TokenMeter.note`) and counts it as happens between two steps
(`TokenMeter.end_step`), each timed alone. The looks and counts are given as shares of the collation
of the same round: median, with the 5 % and 95 % quantiles. One thread. The table and the rounds go
to `bench/results/`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from batchadvisor.probes.loader.token_meter import TokenMeter
from common import RESULTS, Results, header, table

Batch = Callable[[list[torch.Tensor], list[torch.Tensor]], Any]
KINDS: dict[str, Batch] = {
    "attention mask by name": lambda ids, mask: {
        "input_ids": torch.stack(ids),
        "attention_mask": torch.stack(mask),
    },
    "mask beside the tokens": lambda ids, mask: (torch.stack(ids), torch.stack(mask)),
    "run of one id": lambda ids, _: {"input_ids": torch.stack(ids)},
}


def rows(num: int, length: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Ids that are padded with 0, and their masks."""
    ids, mask = [], []
    for end in torch.randint(length // 8, length + 1, (num,)).tolist():
        row = torch.randint(1, 32_000, (length,))
        row[end:] = 0
        ids.append(row)
        mask.append((row != 0).long())
    return ids, mask


def measure(kind: str, num: int, length: int, rounds: int) -> list[dict[str, float]]:
    """Seconds of each part, round by round."""
    make, meter, times = KINDS[kind], TokenMeter(), []
    for _ in range(rounds):
        ids, mask = rows(num, length)
        began = time.perf_counter()
        batch = make(ids, mask)
        collated = time.perf_counter()
        meter.begin_step()
        meter.note(batch)
        noted = time.perf_counter()
        counted = meter.end_step()
        ended = time.perf_counter()
        assert counted is not None
        times.append(
            {"collate_s": collated - began, "look_s": noted - collated, "count_s": ended - noted}
        )
    return times


def shares(times: list[dict[str, float]], part: str) -> tuple[float, float, float]:
    """Of the collation of the same round: median, 5 % and 95 % quantile."""
    values = [each[part] / each["collate_s"] for each in times]
    cuts = statistics.quantiles(values, n=20)
    return statistics.median(values), cuts[0], cuts[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    results = Results(options.results, "token-cost")
    rounds = {kind: measure(kind, options.rows, options.length, options.rounds) for kind in KINDS}
    results.data |= {"rounds": rounds, "state": "finished"}
    lines = []
    for kind, times in rounds.items():
        cells = [
            f"{middle:.3f} [{low:.3f}, {high:.3f}]"
            for middle, low, high in (shares(times, part) for part in ("look_s", "count_s"))
        ]
        look_s, count_s = (
            statistics.median(each[part] for each in times) for part in ("look_s", "count_s")
        )
        lines.append((kind, *cells, f"{look_s * 1e6:.1f}", f"{count_s * 1e3:.2f}"))
    headings = ("evidence", "look / collating", "count / collating", "look, µs", "count, ms")
    title = f"Tokens of batches of {options.rows} x {options.length}, shares of collating them"
    results.finish("\n".join([*header(results.data, title), table(headings, lines)]))


if __name__ == "__main__":
    main()
