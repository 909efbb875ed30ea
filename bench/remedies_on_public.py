"""What `--try all` finds on scripts that people really run, and whether its diff keeps the promise.

    python bench/remedies_on_public.py --clones ~/clones --out bench/results
    python bench/remedies_on_public.py --clones ~/clones --only timm,unet --budget 60s

The scripts are those of `public_scripts.yaml`, each in a fresh copy on made-up data. The plain run
has its budget, and remedies three times as much, so that all of it may take four. Where a diff came
of it, `git apply` takes it in another fresh copy; both copies then run by themselves, in turn and
without batchadvisor (`observed_script.py`), and their ratio is set beside the promised one.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from batchadvisor.units import parse_seconds
from common import HERE, Results, header, say, scratch_folder, table
from public_copies import STAND_INS, limited, made, variables_of, without_paths
from public_scripts import scripts

SCRIPTS = "mingpt_chargpt,unet,timm,accelerate_nlp"
ROUNDS = 3
TIMED_S = 4.0
START_S = 60.0
"""A script by itself has so long to come to its steps, and a run so long beyond its budgets."""


def main() -> None:
    """Runs what was asked for and prints the table."""
    parser = argparse.ArgumentParser(description="`--try all` on scripts as people run them")
    parser.add_argument("--clones", type=Path, required=True, help="as of public_scripts.py")
    parser.add_argument("--only", default=SCRIPTS, help="names, separated by commas")
    parser.add_argument("--budget", default="60s", help="of the plain run")
    parser.add_argument("--try", dest="names", default="all", help="as of `batchadvisor run`")
    parser.add_argument("--out", type=Path, help="folder for the raw results")
    options = parser.parse_args()
    sys.path.insert(0, str(STAND_INS / "torchvision"))
    results = Results(options.out, "remedies-on-public")
    rows = results.data["rows"] = {}
    results.data |= {"budget": options.budget, "tried": options.names}
    for name in options.only.split(","):
        say(name)
        rows[name] = one(scripts()[name], options)
        results.save()
    results.data["state"] = "finished"
    results.finish(report(results.data))


def one(script: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """What came of one script."""
    with scratch_folder() as folder:
        usual, mended = Path(folder) / "usual", Path(folder) / "mended"
        for place in (usual, mended):
            if lack := made(script, place, options.clones):
                return {"error": lack}
            subprocess.run(["git", "init", "-q", str(place)], check=True)
        row = _tried(script, usual, options)
        diff = usual / script.get("folder", "") / "out-bench/remedies.diff"
        if diff.exists():
            row["diff"] = diff.read_text()
            done = subprocess.run(
                ["git", "apply", str(diff)], cwd=mended, capture_output=True, text=True, check=False
            )
            row["applied"] = done.stderr.strip() or done.returncode == 0
            row["by_hand"] = _by_hand(script, row, (usual, mended))
        clean: dict[str, Any] = without_paths(row, usual)
        return clean


def _tried(script: dict[str, Any], place: Path, options: argparse.Namespace) -> dict[str, Any]:
    budget_s = parse_seconds(options.budget)
    command = [sys.executable, "-m", "batchadvisor", "run", "--json", "-q", "-o", "out-bench"]
    command += ["--budget", options.budget, "--try", options.names]
    begun = time.monotonic()
    code, printed, said = limited(
        [*command, *shlex.split(script["words"])],
        place / script.get("folder", ""),
        variables_of(script, place),
        4 * budget_s + START_S,
    )
    row = {"exit_code": code, "wall_s": round(time.monotonic() - begun, 1), "budget_s": budget_s}
    if not printed.startswith("{"):
        return {**row, "error": said.strip()[-600:]}
    told = json.loads(printed)
    return {**row, "headline": told["advice"]["headline"], "remedies": told.get("remedies")}


def _by_hand(
    script: dict[str, Any], row: dict[str, Any], places: tuple[Path, Path]
) -> dict[str, Any]:
    """Samples/s of both copies at the size of the comparison, in turn."""
    size = row["remedies"]["batch_size"]
    words = shlex.split(script["words"])
    if size != script["truth"]["own"]:
        if "set" not in script:
            return {"error": f"{size} cannot be typed"}
        words += shlex.split(script["set"].format(size))
    rates: dict[str, list[float]] = {place.name: [] for place in places}
    for number in range(ROUNDS):
        for place in places if number % 2 else reversed(places):
            start = place / script.get("folder", "")
            out = start / "observed.json"
            out.unlink(missing_ok=True)
            command = [sys.executable, str(HERE / "observed_script.py"), "--out", str(out)]
            command += ["--seconds", str(TIMED_S), "--dimension", str(script.get("dimension", 0))]
            _, printed, said = limited(
                [*command, "--", *words], start, variables_of(script, place), START_S + TIMED_S
            )
            if not out.exists():
                return {"error": f"{place.name}: {(said or printed).strip()[-400:]}"}
            rates[place.name].append(round(json.loads(out.read_text())["samples_per_s"], 2))
    pairs = zip(rates["mended"], rates["usual"], strict=True)
    return {**rates, "gain": round(median(after / before for after, before in pairs), 3)}


def report(data: dict[str, Any]) -> str:
    """The printed table."""
    lines = header(data, f"--try {data['tried']} on public scripts, budget {data['budget']}")
    headings = ["script", "seconds", "remedy", "outcome", "gain", "interval", ""]
    rows: list[list[str]] = []
    for name, row in data["rows"].items():
        found = row.get("remedies")
        share = f"{row['wall_s']:.0f} of {4 * row['budget_s']:.0f}" if "wall_s" in row else ""
        if not found:
            rows.append([name, share, "", "", "", "", row.get("error", "")[-60:]])
            continue
        if found["state"] != "finished":
            rows.append([name, share, "", found["state"], "", "", found["reason"]])
        both = [found["together"]] if found.get("together") else []
        for number, each in enumerate([*found["tried"], *both]):
            gain = each.get("gain")
            first = [name, share] if not number else ["", ""]
            rows.append([*first, each["change"], each["outcome"], *_of(gain), _short(each)])
        if "by_hand" in row:
            hand = row["by_hand"]
            gain = f"x{hand['gain']:.2f}" if "gain" in hand else ""
            rows.append(["", "", "its diff, by hand", "", gain, "", hand.get("error", "")[-60:]])
    return "\n".join([*lines, "", table(headings, rows)])


def _of(gain: dict[str, Any] | None) -> list[str]:
    if gain is None:
        return ["", ""]
    return [f"x{gain['median']:.2f}", f"{gain['low']:.2f} to {gain['high']:.2f}"]


def _short(each: dict[str, Any]) -> str:
    text: str = each.get("reason") or each.get("no_diff") or ""
    return text if len(text) <= 60 else f"{text[:57]}..."


if __name__ == "__main__":
    main()
