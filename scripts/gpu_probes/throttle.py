"""Probe: which reasons for lower clocks does the driver give, idle and saturated?"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from harness import Finding, main
from load import Load, gpu_handle

QUESTION = "Which reasons for lower clocks does the driver give, idle and saturated?"
PERIOD_S = 0.05


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=4.0, help="of each state")


def probe(finding: Finding, given: argparse.Namespace) -> None:
    handle = gpu_handle(given.device)
    finding.keep(idle=watched(handle, given.seconds / 2, None))
    load = Load(given.device)
    finding.keep(saturated=watched(handle, given.seconds, load.feed))
    load.wait()
    finding.keep(right_after=watched(handle, given.seconds / 4, None))
    judge(finding)


def watched(handle: Any, seconds: float, feed: Callable[[], None] | None) -> dict[str, Any]:
    """Reasons by how often they were given, and clock, power and temperature meanwhile."""
    from batchadvisor.probes.nvml.counters import read_sample

    samples = []
    end_s = due_s = time.monotonic()
    end_s += seconds
    while time.monotonic() < end_s:
        if feed is not None:
            feed()
        if time.monotonic() >= due_s:
            due_s += PERIOD_S
            samples.append(read_sample(handle, time.monotonic()))
        time.sleep(0.005)
    reasons = Counter(name for sample in samples for name in sample.throttle_reasons or ())
    answer: dict[str, Any] = {"samples": len(samples), "reasons": dict(reasons)}
    for field in ("sm_clock_mhz", "power_w", "temperature_c", "utilization_pct"):
        values = [value for sample in samples if (value := getattr(sample, field)) is not None]
        answer[field] = statistics.median(values) if values else None
    answer["unavailable"] = {
        key: text for sample in samples for key, text in sample.unavailable.items()
    }
    return answer


def judge(finding: Finding) -> None:
    """A limit on a machine whose only load is ours would make every size doubtful."""
    from batchadvisor.records import GPU_LIMITS, GPU_SETTINGS

    parts = []
    for state in ("idle", "saturated", "right_after"):
        seen = finding.numbers[state]
        if "throttle_reasons" in seen["unavailable"]:
            finding.lack(state, seen["unavailable"]["throttle_reasons"])
            continue
        shares = [
            f"{name} {100 * num / seen['samples']:.0f} %" for name, num in seen["reasons"].items()
        ]
        parts.append(f"{state.replace('_', ' ')}: {', '.join(shares) or 'none'}")
    if not parts:
        return
    finding.answer = "; ".join(parts) + "."
    during = set(finding.numbers["saturated"]["reasons"])
    finding.assume(
        "records/counters.py: GPU_LIMITS",
        sorted(GPU_LIMITS),
        not during & GPU_LIMITS,
        f"saturated it names {sorted(during) or 'none'}",
    )
    unknown = sorted(during - GPU_LIMITS - set(GPU_SETTINGS) - {"gpu_idle"})
    finding.assume(
        "records/counters.py: GPU_SETTINGS",
        sorted(GPU_SETTINGS),
        not unknown,
        f"reasons that are in neither list: {unknown or 'none'}",
    )


if __name__ == "__main__":
    sys.exit(main(probe, QUESTION, options=options))
