"""Probe: how often do the driver's energy and power counters move?"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from typing import Any

from harness import Finding, main
from load import Load, changes, distances, gpu_handle, packed, poll

QUESTION = "How often do the driver's energy and power counters move, and how late are they?"
RISE_SHARE = 0.9


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=3.0, help="of each poll")


def probe(finding: Finding, given: argparse.Namespace) -> None:
    from batchadvisor.probes.nvml.calls import ask
    from batchadvisor.probes.nvml.counters import energy_j

    handle = gpu_handle(given.device)

    def power_w() -> float:
        return float(ask("nvmlDeviceGetPowerUsage", handle)) / 1e3

    readings: dict[str, dict[str, Any]] = {}
    load = None
    for state in ("idle", "busy"):
        if state == "busy":
            load = Load(given.device)
            load.run(1.5 if given.device == "cuda" else 0.1)  # until power has settled
        for name, read in (("energy", lambda: energy_j(handle)), ("power", power_w)):
            with finding.attempt(f"{name}, {state}"):
                feed = load.feed if load is not None else None
                rows = poll(read, given.seconds, meanwhile=feed)
                readings[f"{name}, {state}"] = periods(rows)
                finding.keep(periods=readings, **{f"recording_{name}_{state}": packed(rows)})
    assert load is not None
    load.wait()
    with finding.attempt("how late power is"):
        time.sleep(2.0 if given.device == "cuda" else 0.1)
        rows = poll(power_w, 2.5 if given.device == "cuda" else 0.3, meanwhile=load.feed)
        load.wait()
        finding.keep(power_rises_after_s=rise(rows), recording_power_rise=packed(rows))
    judge(finding, readings)


def periods(rows: list[tuple[float, float]]) -> dict[str, Any]:
    """Distances between two changes, beside how often was asked."""
    asked = distances([row[0] for row in rows])
    moved = distances(changes(rows))
    answer: dict[str, Any] = {
        "questions": len(rows),
        "question_every_s": statistics.median(asked) if asked else None,
        "changes": len(moved) + 1 if moved else len(changes(rows)),
    }
    if moved:
        ordered = sorted(moved)
        answer |= {
            "median_s": statistics.median(ordered),
            "shortest_s": ordered[0],
            "longest_s": ordered[-1],
            "mean_s": statistics.fmean(ordered),
        }
    return answer


def rise(rows: list[tuple[float, float]]) -> float | None:
    """Seconds from the beginning until the value stays within a tenth of how far it rose."""
    first = rows[0][1]
    last = statistics.median(row[1] for row in rows[-max(1, len(rows) // 5) :])
    if last <= 1.2 * first:
        return None
    wanted = first + RISE_SHARE * (last - first)
    return next((time_s for time_s, value in rows if value >= wanted), None)


def judge(finding: Finding, readings: dict[str, dict[str, Any]]) -> None:
    """Against the periods that the product counts on."""
    from batchadvisor.advisor.measured.energy import SHORTEST_S, UPDATE_S, UPDATES
    from batchadvisor.probes.nvml.windows import AVERAGED_S

    known = {name: row["median_s"] for name, row in readings.items() if "median_s" in row}
    if not known:
        return
    listed = ", ".join(f"{name} {1e3 * value:.0f} ms" for name, value in known.items())
    finding.answer = f"median time between two changes: {listed}."
    energy_s = max((value for name, value in known.items() if name.startswith("energy")), default=0)
    if energy_s:
        finding.assume(
            "advisor/measured/energy.py: UPDATE_S",
            UPDATE_S,
            energy_s <= 1.1 * UPDATE_S,
            f"the energy counter moves every {1e3 * energy_s:.0f} ms",
        )
        finding.assume(
            "advisor/measured/energy.py: SHORTEST_S, UPDATES",
            [SHORTEST_S, UPDATES],
            UPDATES * energy_s <= 1.1 * SHORTEST_S,
            f"{UPDATES} updates take {UPDATES * energy_s:.2f} s",
        )
    rises_s = finding.numbers.get("power_rises_after_s")
    if rises_s is not None:
        finding.answer += f" Power shows 90 % of a new load after {rises_s:.2f} s."
        finding.assume(
            "probes/nvml/windows.py: AVERAGED_S",
            AVERAGED_S,
            rises_s <= AVERAGED_S,
            f"power follows within {rises_s:.2f} s",
        )


if __name__ == "__main__":
    sys.exit(main(probe, QUESTION, options=options))
