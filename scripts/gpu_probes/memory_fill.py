"""Probe: what does the allocator reserve above what is used, as the device fills up?"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from harness import JUDGE_S, Finding, child, left_s, main, percent

QUESTION = "Reserved against allocated memory from 50 to 99 %: is the largest size optimistic?"
SHARES = (0.50, 0.60, 0.70, 0.80, 0.85, 0.90, 0.93, 0.95, 0.97, 0.98, 0.99)
"""Of the capacity that a step's own peak takes."""
KIB_A_SAMPLE = (1024, 3400, 700, 5100, 2200, 7900, 330, 4600)
"""What the layers of the made-up network keep for the backward pass, uneven as in real ones."""
FIT_STEPS, MORE_STEPS, EVERY = 2, 20, 5
"""Steps of a fit trial, steps after it, and how often something else comes between them."""
LAST_S = 2.0
MARGIN = 0.05
CONFIGURATIONS = {"default": "", "expandable segments": "expandable_segments:True"}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--fill", action="store_true", help="the child: fills the device")


def probe(finding: Finding, given: argparse.Namespace) -> None:
    if given.fill:
        finding.keep(**fill(lambda: left_s(given) > 0))
        finding.answer = "filled"
        return
    answers = {}
    for place, (name, setting) in enumerate(CONFIGURATIONS.items()):
        # Each has its share of the time: a full device is slow to give and take memory.
        limit_s = left_s(given) / (len(CONFIGURATIONS) - place)
        # The child has nothing to judge: it may use all of its time but the last moment.
        own_limit = f"{limit_s + JUDGE_S - LAST_S:.1f}"
        # torch 2.9 renamed the variable; it reads the old name as well.
        environment = {"PYTORCH_CUDA_ALLOC_CONF": setting} if setting else {}
        said = child(
            [str(Path(__file__)), "--fill", "--device", "cuda", "--limit", own_limit],
            limit_s,
            environment=environment,
        )
        if said.get("errors") or "error" in said:
            finding.lack(name, json.dumps(said.get("errors") or said.get("error")))
        answers[name] = said.get("numbers", {})
        finding.keep(configurations=answers)
    judge(finding, answers)


def fill(more: Callable[[], bool]) -> dict[str, Any]:
    """All shares in this process, on the real device, as long as there is time."""
    import torch

    torch.cuda.init()  # type: ignore[no-untyped-call]
    free, _ = torch.cuda.mem_get_info()
    capacity = free + torch.cuda.memory_reserved()

    def allocate(num_bytes: int) -> Any:
        return torch.UntypedStorage(num_bytes, device="cuda")  # type: ignore[no-untyped-call]

    def release(block: Any) -> None:
        block.resize_(0)

    return filled(allocate, release, capacity, SHARES, more)


def filled(
    allocate: Callable[[int], Any],
    release: Callable[[Any], None],
    capacity: int,
    shares: Sequence[float],
    more: Callable[[], bool] = lambda: True,
) -> dict[str, Any]:
    """A row for each share of the capacity.

    Args:
        allocate: gives a block of so many bytes from torch's caching allocator.
        release: gives it back.
        capacity: bytes that the process can have.
        shares: of it, that a step's own peak takes.
        more: whether there is time for another step.
    """
    # At a step's peak all of it is kept, and a gradient as large as the last layer's part.
    a_sample = 1024 * (sum(KIB_A_SAMPLE) + KIB_A_SAMPLE[-1])
    rows = []
    for share in shares:
        if not more():
            break
        batch = max(1, int(share * capacity / a_sample))
        rows.append({"share": share, "batch_size": batch, **row(allocate, release, batch, more)})
    return {"capacity_bytes": capacity, "rows": rows}


def row(
    allocate: Callable[[int], Any],
    release: Callable[[Any], None],
    batch: int,
    more: Callable[[], bool],
) -> dict[str, Any]:
    """What a fit trial reads, and what becomes of many steps with a few others in between."""
    import torch

    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = retries()
    result: dict[str, Any] = {"refused": None, "steps_made": 0}
    try:
        for _ in range(FIT_STEPS):
            step(allocate, release, batch)
            result["steps_made"] += 1
        result["fit"] = {**peaks(), "num_alloc_retries": retries() - before}
        for number in range(MORE_STEPS):
            if not more():
                break
            if number % EVERY == 0:  # a shorter last batch, then an evaluation
                step(allocate, release, max(1, batch * (7 + number % 3) // 10))
                forward_only(allocate, release, batch)
            step(allocate, release, batch)
            result["steps_made"] += 1
    except torch.OutOfMemoryError as error:
        result["refused"] = str(error)[:600]
    result["after"] = {**peaks(), "num_alloc_retries": retries() - before}
    return result


def peaks() -> dict[str, int]:
    """Peaks of the allocator since they were reset."""
    import torch

    return {
        "peak_allocated_bytes": torch.cuda.max_memory_allocated(),
        "peak_reserved_bytes": torch.cuda.max_memory_reserved(),
    }


def retries() -> int:
    """How often the allocator gave its cache back to find memory."""
    import torch

    return int(torch.cuda.memory_stats().get("num_alloc_retries", 0))


def step(allocate: Callable[[int], Any], release: Callable[[Any], None], batch: int) -> None:
    """Forward keeps each layer's part; backward gives it back behind a gradient of its size."""
    held: list[Any] = []
    try:
        for kib in KIB_A_SAMPLE:
            held.append(allocate(1024 * kib * batch))  # noqa: PERF401  freed where one is refused
        for kib in reversed(KIB_A_SAMPLE):
            gradient = allocate(1024 * kib * batch)
            release(held.pop())
            release(gradient)
    finally:
        for block in held:
            release(block)


def forward_only(
    allocate: Callable[[int], Any], release: Callable[[Any], None], batch: int
) -> None:
    """An evaluation: a layer's input lives until its output is there."""
    last: Any = None
    try:
        for kib in KIB_A_SAMPLE:
            output = allocate(1024 * kib * batch)
            if last is not None:
                release(last)
            last = output
    finally:
        if last is not None:
            release(last)


def judge(finding: Finding, answers: dict[str, dict[str, Any]]) -> None:
    """Sizes that a fit trial lets pass below the margin must go on running."""
    parts = []
    for name, answer in answers.items():
        rows = answer.get("rows")
        if not rows:
            continue
        capacity = answer["capacity_bytes"]
        passed = [
            entry
            for entry in rows
            if "fit" in entry and entry["fit"]["peak_reserved_bytes"] <= (1 - MARGIN) * capacity
        ]
        broken = [
            entry
            for entry in passed
            if entry["refused"] is not None or entry["after"]["num_alloc_retries"]
        ]
        gaps = [
            (entry["after"]["peak_reserved_bytes"] - entry["after"]["peak_allocated_bytes"])
            / capacity
            for entry in rows
            if entry["refused"] is None
        ]
        grown = [
            entry["after"]["peak_reserved_bytes"] / entry["fit"]["peak_reserved_bytes"] - 1
            for entry in passed
        ]
        most = max((entry["share"] for entry in passed if entry not in broken), default=0.0)
        parts.append(
            f"{name}: up to {100 * most:.0f} % of the capacity runs, reserved lies "
            f"{100 * max(gaps, default=0):.1f} % of the capacity above allocated at most and grows "
            f"{percent(max(grown, default=0))} after a fit trial"
        )
        finding.assume(
            f"records/goal.py: Goal.margin ({name})",
            MARGIN,
            not broken,
            "every size that passed a fit trial ran on without retries"
            if not broken
            else f"passed and then retried or refused: {[entry['share'] for entry in broken]}",
        )
        from batchadvisor.advisor.explain.device_findings import SCATTERED_SHARE

        finding.assume(
            f"advisor/explain/device_findings.py: SCATTERED_SHARE ({name})",
            SCATTERED_SHARE,
            None,
            f"reserved above allocated: {100 * max(gaps, default=0):.1f} % of the capacity at most",
        )
    if parts:
        finding.answer = "; ".join(parts) + "."


if __name__ == "__main__":
    sys.exit(main(probe, QUESTION, needs_cuda=True, options=options))
