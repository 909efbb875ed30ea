"""What `callback_overhead.py` measured, as text and as the table of docs/benchmarks.md."""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from batchadvisor.spread import spread_of
from common import HERE, RESULTS, header, table

LIMITS = {1.0: 0.02, 5.0: 0.005}
"""What continuous mode may cost at most, by the step's milliseconds."""
PAGE = HERE.parent / "docs/benchmarks.md"
MARK = "callback cost"
HEADINGS = (
    "step",
    "steps/s without",
    "continuous mode costs",
    "and between steps",
    "the same against itself",
    "a step of a profiled window",
    "a window in all",
)


def cost(estimate: dict[str, Any]) -> str:
    """`0.31 % ± 0.09 %`: mean and standard error."""
    return f"{estimate['mean'] * 100:.2f} % ± {estimate['standard_error'] * 100:.2f} %"


def row(result: dict[str, Any]) -> list[str]:
    """Cells of one length of steps."""
    slower, extra = (spread_of(result["window"][name]) for name in ("slower", "extra_s"))
    assert slower is not None
    assert extra is not None
    return [
        f"{result['plain_s'] * 1e3:.2g} ms",
        f"{1 / result['plain_s']:.0f}",
        cost(result["overhead"]),
        f"{result['pauses']['share'] * 100:.2f} %",
        cost(result["control"]),
        f"{slower.median:.1f} times",
        f"{extra.median:.2f} s",
    ]


def verdicts(data: dict[str, Any]) -> list[str]:
    """Against the limits; an interval that holds the limit decides nothing."""
    lines = []
    for wanted, result in data["steps"].items():
        limit = LIMITS.get(float(wanted))
        if limit is None:
            continue
        whole = result["overhead"]["mean"] + result["pauses"]["share"]
        margin = 2 * result["overhead"]["standard_error"]
        word = "holds" if whole + margin < limit else "fails" if whole - margin > limit else "open"
        lines.append(
            f"limit of {limit:.1%} at {wanted} ms: {word}; {whole:.2%} ± {margin:.2%} (two standard"
            " errors)"
        )
    return lines


def text(data: dict[str, Any]) -> str:
    """Everything that is printed."""
    lines = header(data, "What the profiling callback costs")
    empty = spread_of(data["empty_step_us"])
    if empty is not None:
        lines.append(
            f"an empty step: {empty.median:.2f} us more ({empty.low:.2f} to {empty.high:.2f})"
        )
    lines += [table(HEADINGS, [row(result) for result in data["steps"].values()]), ""]
    for wanted, result in data["steps"].items():
        overhead = result["overhead"]
        lines.append(
            f"{wanted} ms: {overhead['turns']} turns of {result['steps_a_turn']} steps, seed "
            f"{result['seed']}; untrimmed {overhead['untrimmed_mean']:.2%} ± "
            f"{overhead['untrimmed_standard_error']:.2%}; the end of a run with a window takes "
            f"{statistics.median(result['window']['end_s']):.2f} s"
        )
    return "\n".join([*lines, *verdicts(data)])


def markdown(all_data: Sequence[dict[str, Any]]) -> str:
    """The table of docs/benchmarks.md, from results of one or more machines."""
    chosen = {}
    for data in sorted(all_data, key=lambda run: run["environment"]["date"]):
        chosen["cuda" if data["device"].startswith("cuda") else "cpu"] = data  # the latest one
    lines = ["| " + " | ".join(HEADINGS) + " |", "|---" * len(HEADINGS) + "|"]
    for kind in ("cpu", "cuda"):
        if kind not in chosen:
            cells = [f"on a {'GPU' if kind == 'cuda' else 'CPU'}", *["not measured"] * 6]
            lines.append("| " + " | ".join(cells) + " |")
            continue
        for result in chosen[kind]["steps"].values():
            cells = row(result)
            if kind == "cuda":
                cells[0] += f", {chosen[kind]['environment']['hardware']}"
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def committed(folder: Path = RESULTS) -> list[dict[str, Any]]:
    """Finished results of this benchmark in a folder."""
    results = [
        json.loads(path.read_text()) for path in sorted(folder.glob("callback-overhead_*.json"))
    ]
    return [result for result in results if result["state"] == "finished"]


def with_table(page: str, all_data: Sequence[dict[str, Any]]) -> str:
    """The page with its table made anew."""
    begin, end = f"<!-- {MARK}: begin -->\n", f"\n<!-- {MARK}: end -->"
    pattern = re.escape(begin) + ".*?" + re.escape(end)
    whole = begin + markdown(all_data) + end
    changed, num = re.subn(pattern, lambda _: whole, page, flags=re.DOTALL)
    if num != 1:
        sys.exit(f"{PAGE.name} has no place for the table: {begin.strip()}")
    return changed
