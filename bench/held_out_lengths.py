"""Five kinds of batches of texts: the recommended setting beside a sweep, and a replayed epoch.

Each kind is probed under a memory limit, then run for whole epochs, unsteered, at the recommended
size and at others in turn; the pace is that of real tokens per second of CPU time (the steps use
one thread), which neighbours disturb less than the clock. One more epoch runs under the limit.

    python bench/held_out_lengths.py [--budget 40] [-o FOLDER]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

SCRIPT = Path(__file__).parent / "held_out" / "texts.py"
KINDS = {
    "padded": ("--batch-size", (4, 8, 16, 32, 64, 128)),
    "grouped": ("--batch-size", (4, 8, 16, 32, 64, 128)),
    "budget": ("--max-tokens", (300, 512, 1024, 2048, 4096, 8192)),
    "packed": ("--batch-size", (4, 8, 16, 32, 64, 128)),
    "stream": ("--batch-size", (4, 8, 16, 32, 64, 128)),
}
MIB = 2**20


def advice(kind, budget, limit_mib, folder):
    command = [
        sys.executable, "-m", "batchadvisor", "run", "--json", "-q", "-o", str(folder / kind),
        "--no-profile", "--budget", str(budget), "--memory-limit", f"{limit_mib}MiB",
        "--goal", "throughput", str(SCRIPT), kind,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"error": done.stderr[-500:]}
    return json.loads(done.stdout)["advice"]


def epochs(kind, option, size, num=2, limit_mib=None):
    """Real tokens per second of CPU time of the last epoch; why it failed, if it did."""

    def limited():
        if limit_mib is not None:
            resource.setrlimit(resource.RLIMIT_DATA, (limit_mib * MIB,) * 2)

    command = [sys.executable, str(SCRIPT), kind, option, str(size), "--epochs", str(num)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=limited)
    paces = [
        float(line.split()[2]) for line in done.stdout.splitlines() if line.startswith("epoch")
    ]
    if done.returncode or not paces:
        return f"failed: {done.stderr.strip().splitlines()[-1:]}"
    return max(paces)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--budget", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--limit-mib", type=int, default=1200)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS))
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    rows = []
    for kind in args.kinds:
        option, sweep = KINDS[kind]
        with tempfile.TemporaryDirectory() as folder:
            said = advice(kind, args.budget, args.limit_mib, Path(folder))
        chosen = (said.get("recommended") or {}).get("batch_size")
        row = {"kind": kind, "option": option, "recommended": chosen, "load": os.getloadavg()[0]}
        row |= {name: said.get(name) for name in ("headline", "sureness", "change", "error")}
        row["memory_risk"] = said.get("memory_risk")
        if chosen is not None:
            paces = {size: [] for size in sorted({*sweep, chosen})}
            for _ in range(args.rounds):
                for size, read in paces.items():
                    read.append(epochs(kind, option, size))
            best = {
                size: max(each for each in read if isinstance(each, float))
                for size, read in paces.items()
                if any(isinstance(each, float) for each in read)
            }
            row["tokens_per_cpu_s"] = paces
            row["share_of_best"] = best[chosen] / max(best.values())
            replayed = epochs(kind, option, chosen, 1, args.limit_mib)
            row["epoch_under_the_limit"] = replayed
        rows.append(row)
        share = row.get("share_of_best")
        shown = "-" if share is None else f"{share:.1%}"
        print(
            f"{kind:8} {option} {chosen}: {shown} of the best of the sweep; "
            f"an epoch under {args.limit_mib} MiB: {row.get('epoch_under_the_limit')}; "
            f"load {row['load']:.1f}; {row['headline'] or row['error']}",
            flush=True,
        )
        if args.output is not None:
            args.output.write_text(
                json.dumps({"limit_mib": args.limit_mib, "rows": rows}, indent=1)
            )


if __name__ == "__main__":
    main()
