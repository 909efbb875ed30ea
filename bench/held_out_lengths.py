"""Five kinds of batches of texts: the recommended setting beside a sweep, and a replayed epoch.

Each kind is probed twice under a memory limit: for the fastest size, and for the largest that fits.
Whole epochs, unsteered, then take turns at the recommended size and at others, in one process and
in random order; the share is that of real tokens per second of CPU time (the steps use one thread),
which neighbours disturb less than the clock. The padding of every batch of some epochs is counted.
At last an epoch of both sizes runs under the limit.

    python bench/held_out_lengths.py [--budget 40] [-o FOLDER]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from batchadvisor.spread import spread_of
from common import HERE, RESULTS, Results, header, interval, say, scratch_folder, table

SCRIPT = HERE / "held_out" / "texts.py"
TURNS = HERE / "held_out" / "turns.py"
SIZES = (2, 4, 8, 16, 32, 64, 128)
KINDS = {
    "padded": SIZES,
    "grouped": SIZES,
    "budget": (300, 512, 1024, 2048, 4096, 8192),
    "packed": SIZES,
    "stream": SIZES,
}
ENOUGH = 0.97
"""Of the best real tokens per second, that the recommended size has to reach."""
NEAR = 1.0
"""Percentage points that the share of padding may be off."""


def advised(kind, goal, budget, limit_mib):
    """What `batchadvisor run` says."""
    with scratch_folder() as folder:
        command = [
            sys.executable, "-m", "batchadvisor", "run", "--json", "-q", "-o", f"{folder}/run",
            "--no-profile", "--budget", str(budget), "--memory-limit", f"{limit_mib}MiB",
            "--goal", goal, str(SCRIPT), kind,
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"error": done.stderr[-500:]}
    return json.loads(done.stdout)


def turns(kind, sizes, *options):
    command = [sys.executable, str(TURNS), kind, "--sizes", *map(str, sizes), *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"error": " ".join(done.stderr.strip().splitlines()[-1:])}
    return json.loads(done.stdout)


def share_of_best(paces, chosen):
    """The pace of a size over that of the best of the others and itself, round by round."""
    middles = {size: spread_of(read).median for size, read in paces.items()}
    best = max(middles, key=middles.get)
    ratios = [mine / most for mine, most in zip(paces[chosen], paces[best], strict=True)]
    return int(best), spread_of(ratios)


def recommended(said):
    choice = said.get("advice", {}).get("recommended") or {}
    return choice.get("batch_size")


def measured(kind, args):
    """All of one kind."""
    row = {"kind": kind, "load": os.getloadavg()[0]}
    began = time.monotonic()
    say(f"{kind}: the fastest size, {args.budget} s")
    said = advised(kind, "throughput", args.budget, args.limit_mib)
    row["error"] = said.get("error")
    advice = said.get("advice", {})
    row |= {name: advice.get(name) for name in ("headline", "reason", "sureness", "memory_risk")}
    row["recommended"] = chosen = recommended(said)
    searched = [
        trial for trial in said.get("record", {}).get("trials", ()) if trial["purpose"] == "search"
    ]
    row["tried"] = sorted({trial["batch_size"] for trial in searched})
    row["padding_said"] = {
        trial["batch_size"]: 100 * trial["tokens"]["padding_share"]
        for trial in searched
        if (trial.get("tokens") or {}).get("padding_share") is not None
    } | {
        choice["batch_size"]: 100 * choice["epoch_padding"]
        for choice in advice.get("sizes") or ()
        if choice.get("epoch_padding") is not None
    }
    say(f"{kind}: the largest size, {args.memory_budget} s")
    most = advised(kind, "memory", args.memory_budget, args.limit_mib)
    row["largest"] = largest = recommended(most)
    row["largest_headline"] = most.get("advice", most).get("headline", most.get("error"))
    if chosen is not None:
        say(f"{kind}: sizes in turn, {args.seconds} s")
        sizes = sorted({*KINDS[kind], chosen})
        row["turns"] = turns(kind, sizes, "--seconds", args.seconds)
    for name, size in (("replay", chosen), ("replay_of_largest", largest)):
        if size is not None:
            row[name] = turns(kind, [size], "--limit-mib", args.limit_mib)
    row["seconds"] = time.monotonic() - began
    return row


def cells(row):
    """A line of the table, and what of the three claims holds."""
    chosen, read = row["recommended"], row.get("turns") or {}
    paces, counted = read.get("tokens_per_cpu_s"), read.get("padding", {})
    share, best, reached = None, "-", "not known"
    if paces:
        best, share = share_of_best(paces, str(chosen))
        reached = "not shown" if share.low < ENOUGH <= share.high else "no"
        reached = "yes" if share.low >= ENOUGH else reached
    said = {str(size): pct for size, pct in row["padding_said"].items()}.get(str(chosen))
    padding = counted.get(str(chosen))
    off = None if said is None or padding is None else said - 100 * padding
    replays = [row.get("replay") or {}, row.get("replay_of_largest") or {}]
    ran = ["epoch_s" in replay for replay in replays]
    return (
        row["kind"], chosen, best, interval(share, 100, 1, "%"), reached,
        "-" if said is None else f"{said:.1f}%",
        "-" if padding is None else f"{100 * padding:.1f}%",
        "not known" if off is None else "yes" if abs(off) <= NEAR else "no",
        _replay(replays[0]), row["largest"], _replay(replays[1]),
        "yes" if all(ran) else "no",
    )  # fmt: skip


def _replay(replay):
    if "epoch_s" not in replay:
        return replay.get("error", "-")[:40]
    return f"ran, {replay['peak_mib']:.0f} MiB"


def report(data, limit_mib):
    rows = [cells(row) for row in data["kinds"]]
    titles = (
        "kind", "size", "best", "of the best", f">={ENOUGH:.0%}", "padding said", "counted",
        f"within {NEAR:.0f} point", "its epoch", "largest", "its epoch", "no refusal",
    )  # fmt: skip
    told = [
        f"{row['kind']}: {row['headline'] or row['error']} (sizes that the search tried: "
        f"{', '.join(map(str, row['tried']))})"
        for row in data["kinds"]
    ]
    title = f"Batches of texts under {limit_mib} MiB: real tokens per second of CPU time"
    return "\n".join([*header(data, title), table(titles, rows), "", *told])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--budget", type=int, default=40)
    parser.add_argument("--memory-budget", type=int, default=20)
    parser.add_argument("--seconds", type=int, default=30, help="of the sweep's turns")
    parser.add_argument("--limit-mib", type=int, default=1200)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=KINDS)
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    args = parser.parse_args()
    results = Results(args.output, "held-out-lengths")
    results.data["kinds"] = []
    for kind in args.kinds:
        results.data["kinds"].append(measured(kind, args))
        results.save()
    results.data["state"] = "finished"
    results.finish(report(results.data, args.limit_mib))


if __name__ == "__main__":
    main()
