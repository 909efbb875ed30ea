"""Probe: how far off is the energy of a window of 0.1, 1, 2 and 5 s of the same steady work?"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import threading
import time
from typing import Any

from harness import Finding, left_s, main
from load import Load, gpu_handle, gpu_of, packed

QUESTION = "How far off is the energy of windows of 0.1, 1, 2 and 5 s of the same steady work?"
WINDOWS_S = (0.1, 0.3, 1.0, 2.0, 5.0)
PIECES = 1000
"""Windows that are cut out of the one recording, at random places."""
REAL_S = (0.1, 0.1, 0.1, 0.1, 0.1, 1.0, 1.0, 1.0)
"""Windows of the product's own sampler."""
SAMPLER_PERIOD_S = 0.1


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=16.0, help="of steady work")


def probe(finding: Finding, given: argparse.Namespace) -> None:
    from batchadvisor.probes.nvml.counters import energy_j

    handle = gpu_handle(given.device)
    load = Load(given.device)
    load.run(2.0 if given.device == "cuda" else 0.1)  # until clocks and power have settled
    rows: list[tuple[float, float]] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.004):
            rows.append((time.perf_counter(), energy_j(handle)))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    began_s = time.perf_counter()
    windows: list[dict[str, Any]] = []
    with finding.attempt("windows of the sampler"):
        windows = sampled(load, gpu_of(given.device))
        finding.keep(windows_of_the_sampler=windows)
    left = min(given.seconds - (time.perf_counter() - began_s), left_s(given) - 5.0)
    load.run(max(0.5, left))
    over.set()
    thread.join(2.0)
    load.wait()
    if len(rows) < 10:
        finding.lack("the energy of windows", "the counter could not be read ten times")
        return
    rows = [(time_s - rows[0][0], joules) for time_s, joules in rows]
    finding.keep(
        recording_energy=packed(rows),
        mean_power_w=(rows[-1][1] - rows[0][1]) / (rows[-1][0] - rows[0][0]),
    )
    errors = {str(length): cut_errors(rows, length) for length in WINDOWS_S}
    finding.keep(relative_errors={name: error for name, error in errors.items() if error})
    judge(finding, rows)


def sampled(load: Load, gpu: str | int) -> list[dict[str, Any]]:
    """Windows as `run` opens them, with what they say."""
    from batchadvisor.probes.nvml.sampler import NvmlSampler

    rows = []
    with NvmlSampler(gpu, period_s=SAMPLER_PERIOD_S) as sampler:
        for length in REAL_S:
            sampler.begin(steady_s=2.0)
            load.run(length)
            counters = sampler.end()
            rows.append(
                {
                    "wanted_s": length,
                    "window_s": counters.window_s,
                    "energy_j": counters.energy_j,
                    "power_w": counters.power_w,
                    "energy_update_s": counters.energy_update_s,
                    "unavailable": counters.unavailable,
                }
            )
    return rows


def cut_errors(rows: list[tuple[float, float]], length_s: float) -> dict[str, float] | None:
    """Windows cut out of one recording: their power against that of the whole, relative.

    The recording must be at least twice as long as a window.
    """
    whole_s = rows[-1][0] - rows[0][0]
    mean_w = (rows[-1][1] - rows[0][1]) / whole_s if whole_s else 0.0
    if whole_s < 2 * length_s or mean_w <= 0:
        return None
    draw = random.Random(1)
    off = []
    for _ in range(PIECES):
        start_s = draw.uniform(0, whole_s - length_s) + rows[0][0]
        begin, end = (at(rows, moment) for moment in (start_s, start_s + length_s))
        off.append((end[1] - begin[1]) / (end[0] - begin[0]) / mean_w - 1)
    ordered = sorted(map(abs, off))
    return {
        "standard_deviation": statistics.pstdev(off),
        "bias": statistics.fmean(off),
        "worst": ordered[-1],
        "within_95_pct": ordered[int(0.95 * (PIECES - 1))],
    }


def at(rows: list[tuple[float, float]], moment_s: float) -> tuple[float, float]:
    """The first reading at or after a moment, the last one at the end."""
    low, high = 0, len(rows) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if rows[middle][0] < moment_s else (low, middle)
    return rows[low]


def judge(finding: Finding, rows: list[tuple[float, float]]) -> None:
    """Against the error that the product counts on for the shortest window that it believes."""
    from batchadvisor.advisor.measured.energy import EDGE_SD, SHORTEST_S, UPDATE_S, Z
    from load import changes, distances

    errors = finding.numbers["relative_errors"]
    if not errors:
        return
    listed = ", ".join(
        f"{name} s: {100 * error['standard_deviation']:.1f} %" for name, error in errors.items()
    )
    finding.answer = f"standard deviation of a window's energy: {listed}."
    shortest = errors.get(str(SHORTEST_S))
    if shortest is None:
        return
    moved = distances(changes(rows))
    update_s = statistics.median(moved) if moved else UPDATE_S
    predicted = Z * EDGE_SD * update_s / SHORTEST_S
    finding.keep(predicted_half_width=predicted, update_s=update_s)
    finding.assume(
        "advisor/measured/energy.py: SHORTEST_S, EDGE_SD, UPDATE_S",
        [SHORTEST_S, EDGE_SD, UPDATE_S],
        shortest["within_95_pct"] <= max(predicted, 0.01),
        f"95 of 100 windows of {SHORTEST_S:g} s are within {100 * shortest['within_95_pct']:.1f} %,"
        f" predicted {100 * predicted:.1f} %",
    )


if __name__ == "__main__":
    sys.exit(main(probe, QUESTION, options=options))
