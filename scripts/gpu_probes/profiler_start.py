"""Probe: how long does the profiler take to start, the first time and the second?"""

from __future__ import annotations

import argparse
import sys

from harness import Finding, main
from profiling_work import make_step, profiled

QUESTION = "How long does profiler.start() take the first time and the second?"


def probe(finding: Finding, given: argparse.Namespace) -> None:
    step = make_step(given.device)
    windows = []
    for _ in range(3):
        windows.append(profiled(step, given.device))
        finding.keep(windows=windows)
    first, second, third = (window["start_s"] for window in windows)
    finding.answer = (
        f"the first start takes {first:.3f} s, the second {second:.3f} s, the third {third:.3f} s; "
        f"stopping and writing {windows[0]['finish_s']:.3f} s the first time."
    )
    from batchadvisor.probes.nvml.sampler import LATE_S

    finding.assume(
        "probes/nvml/sampler.py: LATE_S",
        LATE_S,
        None,
        f"a window whose end is read only after the first start is {first:.3f} s late: "
        + ("its edge counters would be left out" if first > LATE_S else "its counters count"),
    )


if __name__ == "__main__":
    sys.exit(main(probe, QUESTION))
