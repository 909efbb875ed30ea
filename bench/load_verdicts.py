"""How runs under load are judged, from truths of quiet hours, and the table of them; pure."""

from __future__ import annotations

import itertools
import math
import statistics
from typing import Any

from common import header, table

TOLERANCE = 0.05
"""What the goal `knee` gives away on purpose."""
RESOLUTION = 0.03
"""How well the truth is known: so much more is neither worse than the own nor beyond tolerance."""


def true_step_s(truth: dict[str, Any], size: int) -> float:
    """Seconds of a step on the quiet machine; between sizes of the grid by a straight line.

    Beyond the grid as if throughput stayed what it is at its end.
    """
    known = sorted((int(key), value) for key, value in truth["step_s"].items())
    if size <= known[0][0]:
        return known[0][1] * (size / known[0][0] if size < known[0][0] else 1.0)
    for (low, low_s), (high, high_s) in itertools.pairwise(known):
        if size <= high:
            return low_s + (high_s - low_s) * (size - low) / (high - low)
    return known[-1][1] * size / known[-1][0]


def speed(truth: dict[str, Any], size: int) -> float:
    """Samples per second on the quiet machine."""
    return size / true_step_s(truth, size)


def judged(row: dict[str, Any], truth: dict[str, Any], budget_s: float) -> dict[str, Any]:
    """What a run got right, from the truth; pure."""
    size, own = row.get("recommended"), row.get("own")
    best = max(speed(truth, int(key)) for key in truth["step_s"])
    verdict: dict[str, Any] = {"answer": answer_of(row)}
    if size is not None and own is not None and size != own:
        verdict["share_of_best"] = speed(truth, size) / best
        verdict["over_own"] = speed(truth, size) / speed(truth, own)
        verdict["worse_than_own"] = verdict["over_own"] < 1 - RESOLUTION
        verdict["within"] = verdict["share_of_best"] >= 1 - TOLERANCE - RESOLUTION
        verdict["compared"] = {size, own} <= set(row["sizes_timed"])
    if "over_own" not in verdict:
        verdict["right"] = verdict["answer"] in ("keeps own", "too noisy")
    else:
        near = verdict["within"] or verdict["answer"] == "too noisy"
        verdict["right"] = near and verdict["compared"] and not verdict["worse_than_own"]
    verdict["right"] = verdict["right"] and not row.get("left")
    trials = row.get("trials", [])
    steps = [trial["step_s"]["median"] for trial in trials if trial["step_s"]]
    steps += [trial["quality"]["longest_stall_s"] for trial in trials if trial["quality"]]
    if "search_s" in row:
        verdict["start_s"] = row["wall_s"] - row["search_s"]
        longest_s = max(steps, default=0.0) + row.get("longest_stop_s", 0.0)
        verdict["over_budget_s"] = row["search_s"] - 1.2 * budget_s - longest_s
        verdict["right"] = verdict["right"] and verdict["over_budget_s"] <= 0
    qualities = [trial["quality"] for trial in trials if trial["quality"]]
    num_steps = sum(quality["num_steps"] for quality in qualities)
    if num_steps:
        verdict["disturbed"] = sum(quality["num_disturbed"] for quality in qualities) / num_steps
    shares = [trial["tool_cpu_pct"] for trial in trials if trial["tool_cpu_pct"] is not None]
    if shares:
        verdict["tool_cpu_pct"] = statistics.median(shares)
    verdict["clean_over_quiet"] = [
        trial["step_s"]["median"] / true_step_s(truth, trial["batch_size"])
        for trial in trials
        if trial["step_s"] and (trial["quality"] or {}).get("method") == "clean steps"
    ]
    verdict["causes"] = sorted(
        {cause["kind"] for trial in trials for cause in trial["causes"] or ()}
    )
    return verdict


def answer_of(row: dict[str, Any]) -> str:
    """`size`, `keeps own`, `too noisy`, or `none` where nothing was said."""
    size = row.get("recommended")
    said = f"{row.get('headline', '')} {row.get('reason', '')}".lower()
    if "too noisy" in said:
        return "too noisy"
    if size is None:
        return "none"
    return "keeps own" if size == row.get("own") else "size"


def report(data: dict[str, Any]) -> str:
    """The printed tables."""
    lines = header(data, "batchadvisor run on a machine that others use")
    rows = []
    by_kind: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in data["runs"]:
        verdict = judged(row, data["truth"][row["script"]], row["budget_s"])
        by_kind.setdefault((row["script"], row["condition"]), []).append(verdict)
    for (name, kind), verdicts in by_kind.items():
        answers = [verdict["answer"] for verdict in verdicts]
        ratios = [ratio for verdict in verdicts for ratio in verdict["clean_over_quiet"]]
        rows.append((
            name, kind, f"{sum(verdict['right'] for verdict in verdicts)}/{len(verdicts)}",
            "/".join(
                str(answers.count(answer))
                for answer in ("size", "keeps own", "too noisy", "none")
            ),
            sum(verdict.get("worse_than_own", False) for verdict in verdicts),
            _over(verdicts, "start_s", statistics.median, 1),
            _over(verdicts, "share_of_best", min, 2), _over(verdicts, "over_budget_s", max, 1),
            _over(verdicts, "disturbed", statistics.median, 2),
            f"{statistics.median(ratios):.3f}" if ratios else "-",
            f"{max(ratios, key=lambda ratio: abs(math.log(ratio))):.2f}" if ratios else "-",
            _over(verdicts, "tool_cpu_pct", max, 2),
            " ".join(sorted({cause for verdict in verdicts for cause in verdict["causes"]})) or "-",
        ))  # fmt: skip
    if rows:
        headings = ("script", "condition", "right", "size/own/noisy/none", "worse than own",
                    "to first trial s", "least share of best", "over budget s", "disturbed",
                    "clean/quiet", "worst", "tool CPU %", "causes")  # fmt: skip
        lines += [table(headings, rows), ""]
    lines += [f"not measured: {kind}: {why}" for kind, why in data["unavailable"].items()]
    for name, truth in data["truth"].items():
        speeds = [f"{key}: {speed(truth, int(key)):.0f}" for key in truth["step_s"]]
        shown = ", ".join(speeds)
        lines.append(f"truth of {name}, load {truth['load']:.1f} before, samples/s: {shown}")
    cuts = [row for row in data["interrupts"] if "took_s" in row]
    if cuts:
        kinds = sorted({row["record"] for row in cuts})
        records = ", ".join(
            f"{sum(row['record'] == kind for row in cuts)} {kind}" for kind in kinds
        )
        left_count = sum(row["left"] > 0 for row in cuts)
        alone = sum(not row["compared"] for row in cuts)
        right = sum(row["right"] for row in cuts)
        lines += ["", f"Ctrl-C at {len(cuts)} random moments: {right} right"]
        lines.append(f"  {alone} sizes without a comparison, {left_count} times a process was left")
        lines.append(f"  records: {records}")
    return "\n".join(lines)


def _over(verdicts: list[dict[str, Any]], key: str, of: Any, digits: int) -> str:
    values = [verdict[key] for verdict in verdicts if key in verdict]
    return f"{of(values):.{digits}f}" if values else "-"
