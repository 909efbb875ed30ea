"""What `batchadvisor run` answers to scripts that people really run, checked against their source.

    python bench/public_scripts.py --clones ~/clones                # all; half an hour
    python bench/public_scripts.py --clones ~/clones --only mnist,nanogpt --again --budget 20s
    python bench/public_scripts.py --clones ~/clones --beside 3     # beside three busy processes
    python bench/public_scripts.py --clones ~/clones --beside 3 --unanswered --budget 120s
    python bench/public_scripts.py --clones ~/clones --as-written   # without batchadvisor: the list
    python bench/public_scripts.py --only ours                      # those in bench/public
    python bench/public_scripts.py --device cuda --clones ~/clones  # those with a `gpu` there
    python bench/public_scripts.py --page                           # docs/works-with.md again

`bench/public_scripts.yaml` lists them, with what the source of each says. The scripts are
unmodified: out of clones in one folder (`~/clones/NAME`, or `NAME.git` without a work tree) at the
commit that the list names, or out of an installed package. Each is run as a user would type it, in
a fresh copy, on data that `made_data.py` makes, with no option but the budget. Nothing is
downloaded: what stands for a package that needs a network or does not load here is in
bench/stand_ins, and the page names it. A script whose package or clone is missing is skipped and
named. Where all are run, docs/works-with.md is written too.

Rows are kept in the results; a row that is there is not run again without `--again`. Where the list
says so, sizes are typed and timed one by one too, in turn and without batchadvisor, by
`observed_script.py`; else the advised one, to see that it arrives.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pty
import re
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml
from common import HERE, RESULTS, Results, environment, say, scratch_folder
from public_copies import STAND_INS, busy, limited, made, variables_of, without_paths
from public_page import PAGE, page, report
from public_verdicts import judged, proposed

LIST = HERE / "public_scripts.yaml"
_TIMED_S = 2.5
_ONE_LIMIT_S = 30.0
_SWEEP_LIMIT_S = 150.0
_AS_WRITTEN_LIMIT_S = 90.0
_SWEPT = (1, 2, 4, 8)
"""Multiples of the own size that a sweep times, beside the advised size."""


def main() -> None:
    """Runs what was asked for and prints the table."""
    parser = argparse.ArgumentParser(description="batchadvisor on scripts as people run them")
    parser.add_argument("--clones", type=Path, help="folder of clones, each named as its project")
    parser.add_argument("--only", default="", help="names, separated by commas; `ours` for ours")
    parser.add_argument("--budget", default="30s", help="as of `batchadvisor run`")
    parser.add_argument(
        "--limit", type=float, default=90.0, help="seconds for one run (%(default)s)"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="(%(default)s)")
    parser.add_argument("--beside", type=int, default=0, help="processes that are busy meanwhile")
    parser.add_argument("--again", action="store_true", help="run rows that are there too")
    parser.add_argument(
        "--unanswered", action="store_true", help="run again what had no answer in its budget"
    )
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--logs", type=Path, help="keep what each run printed in this folder")
    parser.add_argument("--as-written", action="store_true", help="only check the list itself")
    parser.add_argument("--page", action="store_true", help="only write the page from the results")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # with all that was started
    listed = scripts(options.device)
    if options.device == "cpu":
        sys.path.insert(0, str(STAND_INS / "torchvision"))  # what makes models imports it
    beside = f"-beside-{options.beside}" if options.beside else ""
    on = "-cuda" if options.device == "cuda" else ""
    path = options.results / f"public-scripts{on}{beside}.json"
    if options.page:
        write_page(listed)
        return
    chosen = _chosen(listed, options.only)
    if options.as_written:
        for name in chosen:
            say(f"{name}: {_as_written(listed[name], options.clones)}")
        return
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"rows": {}}))
    results = Results(None, "", resumed=path)
    rows = results.data["rows"]
    if options.unanswered:
        chosen = [
            name
            for name in chosen
            if name in rows and judged(listed[name], rows[name]).verdict in ("later", "slow")
        ]
    if options.again or options.unanswered:  # what is interrupted goes on without it
        rows = results.data["rows"] = {name: rows[name] for name in rows if name not in chosen}
        results.save()
    results.data["busy_processes"] = options.beside
    results.data |= {"environment": environment(), "versions": _versions(listed)}
    with busy(options.beside):
        for name in chosen:
            if rows.get(name, {}).get("outcome", "skipped") == "skipped":
                say(name)
                rows[name] = _row(name, listed[name], options)
                say(f"  {rows[name]['outcome']}  {rows[name].get('headline') or _last(rows[name])}")
                results.save()
    results.data["rows"] = {name: rows[name] for name in listed if name in rows}
    results.data["state"] = "finished"
    results.finish(report(results.data, listed))
    if path.parent.resolve() == RESULTS and options.device == "cpu":
        write_page(listed)


def write_page(listed: dict[str, Any]) -> None:
    """docs/works-with.md, of the results that are there."""
    PAGE.write_text(page(*results_of(RESULTS), listed), encoding="utf-8")


def results_of(folder: Path) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Those of a quiet machine, and those beside busy processes."""
    quiet, beside = folder / "public-scripts.json", folder / "public-scripts-beside-3.json"
    return json.loads(quiet.read_text()), json.loads(
        beside.read_text()
    ) if beside.exists() else None


def scripts(device: str = "cpu") -> dict[str, dict[str, Any]]:
    """The list, by name; those of ours as `ours/NAME`."""
    listed = yaml.safe_load(LIST.read_text(encoding="utf-8"))
    if device == "cuda":
        return {
            script["name"]: {**script, **script["gpu"], "device": device, "sweep": False}
            for script in listed["scripts"]
            if "gpu" in script
        }
    ours = {f"ours/{script['name']}": script for script in listed["ours"]}
    return {script["name"]: script for script in listed["scripts"]} | ours


def _chosen(listed: dict[str, Any], only: str) -> list[str]:
    if not only:
        return [name for name in listed if not name.startswith("ours/")]
    names = only.split(",")
    chosen = [n for n in listed if n in names or ("ours" in names and n.startswith("ours/"))]
    if unknown := [name for name in names if name not in {*listed, "ours"}]:
        sys.exit(f"not in the list: {', '.join(unknown)}. It has {', '.join(listed)}")
    return chosen


# one script ----------------------------------------------------------------------------------


def _row(name: str, script: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    row: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%dT%H:%M", time.gmtime()),
        "budget": options.budget,
        "load": round(os.getloadavg()[0], 1),
        "command": f"batchadvisor run {script['words'].strip()}",
    }
    with scratch_folder() as folder:
        place = Path(folder) / name.rpartition("/")[2]
        if lack := made(script, place, options.clones):
            return {**row, "outcome": "skipped", "error": lack}
        start = place / script.get("folder", "")
        variables = variables_of(script, place)
        words = shlex.split(script["words"])
        row |= _run(words, start, variables, options, options.logs and options.logs / name)
        if command := proposed(script, row):
            shutil.rmtree(start / "out-bench", ignore_errors=True)
            second = _run(shlex.split(command), start, variables, options, None)
            row["second"] = {"command": f"batchadvisor run {command}", **second}
        sizes = _typed_sizes(script, row)
        if sizes:
            row["typed"] = _typed(script, sizes, start, variables)
        return {name: without_paths(value, place) for name, value in row.items()}


def _run(
    words: Sequence[str],
    start: Path,
    variables: dict[str, str],
    options: argparse.Namespace,
    logs: Path | None,
) -> dict[str, Any]:
    command = [sys.executable, "-m", "batchadvisor", "run", "--json", "-q", "-o", "out-bench"]
    begun = time.monotonic()
    code, printed, said = limited(
        [*command, "--budget", options.budget, *words], start, variables, options.limit
    )
    base = {"exit_code": code, "wall_s": round(time.monotonic() - begun, 1)}
    if logs is not None:
        logs.mkdir(parents=True, exist_ok=True)
        log = start / "out-bench" / "script.log"
        (logs / "script.log").write_text(log.read_text() if log.exists() else "")
        (logs / "stdout.json").write_text(printed)
        (logs / "stderr.txt").write_text(said)
    said = said.strip()[-2000:]
    if code is None:
        return {**base, "outcome": "slow", "error": f"ended after {options.limit:g} s. {said}"}
    told = json.loads(printed) if printed.startswith("{") else {}
    # What was measured is too little for an answer, which is no failure, and says how to go on.
    later = code == 1 and told.get("advice", {}).get("standing") == "not compared"
    if code != 0 and not later:
        return {**base, "outcome": "refused", "error": said}
    return {**base, "outcome": "answered", **_answer(told)}


def _answer(told: dict[str, Any]) -> dict[str, Any]:
    """What of an answer is compared and shown."""
    advice, discovery = told["advice"], told["record"]["discovery"]
    primary = next(
        loader
        for loader in discovery["loaders"]
        if loader["ordinal"] == discovery["primary_loader"]
    )
    trials = [trial for trial in told["record"]["trials"] if trial["outcome"] == "ok"]
    sizes = {(trial["batch_size"], trial["arrived_batch_size"]) for trial in trials}
    findings = [f"{finding['message']} {finding['remedy']}" for finding in advice["findings"]]
    return {
        "door": discovery.get("door", "loader"),
        "own": discovery["native_batch_size"],
        "micro_batches": discovery["micro_batches"],
        "loader": _place(primary["place"]),
        "source": primary.get("source"),
        "headline": advice["headline"],
        "reason": advice["reason"],
        "recommended": (advice.get("recommended") or {}).get("batch_size"),
        "standing": advice.get("standing"),
        "sureness": advice["sureness"],
        "change": advice["change"],
        "findings": findings,
        "arrived": sorted(sizes, key=str),
        "timed": sorted({t["batch_size"] for t in trials if t["kind"] in ("timed", "turns")}),
    }


def _place(place: dict[str, Any] | None) -> str | None:
    return place and f"{place['file']}:{place['line']}"


# without batchadvisor ------------------------------------------------------------------------


def _observed(
    words: Sequence[str], start: Path, variables: dict[str, str], dimension: int, limit_s: float
) -> dict[str, Any]:
    """What the steps of a script are like by themselves."""
    out = start / "observed.json"
    out.unlink(missing_ok=True)
    command = [sys.executable, str(HERE / "observed_script.py"), "--out", str(out)]
    command += ["--seconds", str(_TIMED_S), "--dimension", str(dimension), "--", *words]
    ours, terminal = pty.openpty()
    try:
        code, printed, said = limited(command, start, variables, limit_s, terminal)
    finally:
        os.close(ours)
        os.close(terminal)
    if out.exists():
        seen: dict[str, Any] = json.loads(out.read_text())
        return seen
    return {"error": "took too long" if code is None else (said or printed).strip()[-600:]}


def _typed_sizes(script: dict[str, Any], row: dict[str, Any]) -> list[int]:
    """Which are typed as the script takes them: those of a sweep, or only the advised one."""
    advised = row.get("recommended")
    if advised is None or "set" not in script:
        return []
    own = script["truth"]["own"]
    if script.get("sweep"):
        return sorted({own * times for times in _SWEPT} | {advised})
    return [advised] if advised != own else []


def _typed(
    script: dict[str, Any], sizes: list[int], start: Path, variables: dict[str, str]
) -> dict[str, Any]:
    """Samples per second of each size, upwards and then downwards, as long as time is left.

    Returns them, and the sizes that no step trained on although they were typed (`missed`).
    """
    begun, dimension = time.monotonic(), script.get("dimension", 0)
    speeds: dict[int, list[float]] = {size: [] for size in sizes}
    missed = set()
    for size in [*sizes, *reversed(sizes)] if len(sizes) > 1 else sizes:
        if time.monotonic() - begun > _SWEEP_LIMIT_S:
            break
        words = shlex.split(f"{script['words']} {script['set'].format(size)}")
        seen = _observed(words, start, variables, dimension, _ONE_LIMIT_S)
        if str(size) in seen.get("sizes", ()):
            speeds[size].append(round(seen["samples_per_s"], 1))
        elif seen.get("num_steps"):
            missed.add(size)
    timed = {str(size): values for size, values in speeds.items() if values}
    return {"samples_per_s": timed, "missed": sorted(missed)}


def _as_written(script: dict[str, Any], clones: Path | None) -> str:
    """Whether a script runs by itself, and trains on what the list says."""
    with scratch_folder() as folder:
        place = Path(folder) / script["name"]
        if lack := made(script, place, clones):
            return f"skipped, {lack}"
        variables = variables_of(script, place)
        words = shlex.split(script["words"])
        start = place / script.get("folder", "")
        dimension = script.get("dimension", 0)
        seen = _observed(words, start, variables, dimension, _AS_WRITTEN_LIMIT_S)
    if "error" in seen:
        return f"FAILS BY ITSELF: {seen['error']}"
    sizes = {int(size): num for size, num in seen["sizes"].items()}
    own = script.get("truth", {}).get("own")
    counted = script.get("counts", True) and own is not None
    verdict = "" if not counted or own in sizes else f"  NOT AS LISTED, {own}"
    return f"steps {seen['num_steps']}, sizes {sizes}{verdict}"


def _last(row: dict[str, Any]) -> str:
    return re.sub(r"\s+", " ", row.get("error", ""))[:200]


def _versions(listed: dict[str, Any]) -> dict[str, str]:
    names = sorted(
        {package for script in listed.values() for package in script.get("packages", [])}
    )
    versions = {}
    for name in names:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


if __name__ == "__main__":
    main()
