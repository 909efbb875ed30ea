"""Regret: how much throughput the recommended size leaves beside the best of a sweep.

    python bench/regret.py                                # all scripts, quiet and beside 1, 3, 6
    python bench/regret.py --conditions quiet --scripts "gan, 2 workers;cnn"
    python bench/regret.py --resume bench/results/regret_....json
    python bench/regret.py --resume bench/results/regret_....json --page   # the pages again
    python bench/regret.py --device cuda --clones DIR --conditions quiet --passes 2

The truth is no measurement of batchadvisor: each size of a grid runs the script by itself, as a
user would start it, and only the moments at which its optimizer stepped are written down. The
processes of all sizes live at once and take turns for half a second each, so that what the machine
does meanwhile meets them all. Each pass starts them anew: one before the runs, the others after
them. The recommended sizes join these, and sizes that are far below the best are left out of them.

On a CPU, processes of one script differ by a third for all their life where steps give their
memory back to the system: where blocks happen to lie decides how much. The truth and the runs are
therefore started with the variables that the finding `memory.page_faults` names. What is left
makes the best of a grid in part the luckiest. Regret is 1 - throughput at the recommended size /
best, in each pass, where the other passes say which size is the best; its mean, with the 90 %
interval that the passes give it.

Start it on a quiet machine: the other conditions make their own busy processes. What was measured
is kept as it comes, and `--resume` goes on with what is missing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import loads
from batchadvisor.advisor.measured.page_faults import KEEPS_MEMORY
from batchadvisor.spread import student
from common import EXAMPLES, HERE, RESULTS, Results, header, say, scratch_folder, slug, table
from in_turn import Training, steps_per_s
from public_copies import without_paths
from stamped import read_stamps

TRAINING = HERE / "planted" / "training.py"
CONDITIONS = {"quiet": 0, "busy1": 1, "busy3": 3, "busy6": 6}
"""So many busy processes beside a run; two cores are full with two."""
START_S = 0.5
"""Steps of the first half second are left out: memory and threads are new."""
GPU_START_S = 1.5
"""The same on a GPU, where libraries choose their kernels as well."""
GPU_LIMIT_S = 20.0
"""A size that has not made its steps by then has no rate."""
LOAD_LIMIT_S = 60.0
"""Longer than this nobody waits for a process to load torch."""
AHEAD = 3
"""So many processes of a GPU's sizes are there at a time; those that wait use no time of it."""
NO_WORSE = 0.03
"""Beside others the recommended size may be so much slower than the script's own, no more."""
NEAR = 0.7
"""Sizes below this share of the best are timed no further."""
LARGE_GAIN = 1.5
"""A gain that must be found beside others, too."""


class Script(NamedTuple):
    """A training and how its size is set.

    Attributes:
        words: its arguments, without the size.
        own: its own size.
        sizes: the grid of the truth.
        door: `loader`, or `template` where no loader can be steered.
        batches: that one step of an optimizer takes; half of one where two optimizers step.
        device: on which the script trains.
        cloned: whether the path is one below the folder of clones, and the script runs in its own.
        num_workers: of its loader.
    """

    path: Path
    words: tuple[str, ...]
    own: int
    sizes: tuple[int, ...]
    door: str = "loader"
    option: str = "--batch-size"
    batches: float = 1.0
    device: str = "cpu"
    cloned: bool = False
    num_workers: int = 0


def _kind(
    kind: str, own: int, most: int, workers: int = 0, *, batches: float = 1.0, device: str = "cpu"
) -> Script:
    words = ("--kind", kind, "--workers", str(workers), "--batch-size", str(own))
    words += ("--device", device)
    sizes = [own]
    while sizes[-1] < most:
        # A GPU's grid goes farther, and each size starts a process that takes seconds.
        sizes.append((2 if device == "cpu" else 4) * sizes[-1])
    grid = (max(1, own // 4), *sizes)
    return Script(TRAINING, words, own, grid, batches=batches, device=device, num_workers=workers)


SCRIPTS = {
    "perceptron": _kind("perceptron", 64, 2048),
    "perceptron, 1 worker": _kind("perceptron", 64, 1024, workers=1),
    "deep": _kind("deep", 32, 1024),
    "cnn": _kind("cnn", 16, 256),
    "cnn, 1 worker": _kind("cnn", 16, 256, workers=1),
    "cnn, 2 workers": _kind("cnn", 16, 256, workers=2),
    "cnn, 4 workers": _kind("cnn", 16, 256, workers=4),
    "wide cnn, 2 workers": _kind("wide_cnn", 32, 128, workers=2),
    "gan, 2 workers": _kind("gan", 32, 1024, workers=2, batches=0.5),
    "sleeping, 1 worker": _kind("sleeping", 16, 128, workers=1),
    "sleeping, 4 workers": _kind("sleeping", 16, 128, workers=4),
    "decoding, 2 workers": _kind("decoding", 8, 128, workers=2),
    "lstm": _kind("lstm", 16, 512),
    "saturated": _kind("saturated", 128, 1024),
    "growing memory": _kind("growing", 16, 256),
    "accumulating, 2 workers": _kind("accumulating", 16, 256, workers=2, batches=4.0),
    "char_gpt": Script(EXAMPLES / "char_gpt.py", (), 8, (2, 8, 16, 32, 64, 128)),
    "resnet18": Script(EXAMPLES / "resnet18_cifar10.py", (), 16, (4, 16, 32, 64, 128)),
    "nanogpt": Script(
        HERE / "public" / "nanogpt.py",
        (),
        12,
        (3, 12, 24, 48, 96),
        "template",
        "--batch_size",
        batches=2.0,
    ),
    "cnn, 4 workers, GPU": _kind("cnn", 16, 4096, workers=4, device="cuda"),
    "gan, 2 workers, GPU": _kind("gan", 32, 8192, workers=2, batches=0.5, device="cuda"),
    "deep, GPU": _kind("deep", 32, 8192, device="cuda"),
    "char_gpt, GPU": Script(
        EXAMPLES / "char_gpt.py",
        ("--epochs", "1000"),
        8,
        (2, 8, 32, 128, 512, 1024),
        device="cuda",
    ),
    "pytorch/examples dcgan, GPU": Script(
        Path("examples/dcgan/main.py"),
        ("--dataset", "fake", "--accel"),
        64,
        (16, 64, 256, 1024),
        option="--batchSize",
        batches=0.5,
        device="cuda",
        cloned=True,
    ),
    "karpathy/nanoGPT, GPU": Script(
        Path("nanoGPT/train.py"),
        ("config/train_shakespeare_char.py", "--compile=False", "--eval_iters=1"),
        64,
        (16, 64, 256, 512),
        option="--batch_size",
        device="cuda",
        cloned=True,
    ),
}


# the truth -----------------------------------------------------------------------------------


def started(script: Script, size: int, seconds: float, folder: Path) -> subprocess.Popen[bytes]:
    """The script by itself at a size; on a GPU it waits for a file `go` in that folder."""
    word = f"{script.option}={size}"
    told = {"BENCH_STAMPS": str(folder / "stamps"), **variables_of(script)}
    if script.device != "cpu":
        told |= {"BENCH_SPAN": f"{GPU_START_S},{seconds}", "BENCH_GO": str(folder / "go")}
    return subprocess.Popen(
        [sys.executable, str(HERE / "stamped.py"), str(script.path), *script.words, word],
        env={**os.environ, **told}, start_new_session=True, cwd=place_of(script, folder),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def variables_of(script: Script) -> dict[str, str]:
    """What is set for a process of the script, whoever starts it."""
    return KEEPS_MEMORY if script.device == "cpu" else {}


def place_of(script: Script, folder: Path) -> Path:
    """Where the script runs: a clone's has files beside it."""
    return script.path.parent if script.cloned else folder


def killed(process: subprocess.Popen[bytes]) -> None:
    """Ends a process and those that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def on_cpu(script: Script, order: list[int], seconds: float) -> dict[str, float | None]:
    """Samples per second at each size: all live at once, and take turns (see `in_turn.py`)."""
    with scratch_folder() as name, contextlib.ExitStack() as ends:
        trainings = {}
        for size in order:
            folder = Path(name) / str(size)
            folder.mkdir()
            process = started(script, size, seconds, folder)
            ends.callback(killed, process)
            trainings[size] = Training(process, folder / "stamps", max(1, script.num_workers))
        rates = steps_per_s(trainings, START_S, seconds)
    return {
        str(size): rate and rate * size * script.batches for size, rate in sorted(rates.items())
    }


def loaded(folder: Path, process: subprocess.Popen[bytes]) -> None:
    """Waits until a process has torch and its device, or has ended, or takes too long."""
    latest_s = time.monotonic() + LOAD_LIMIT_S
    ready = folder / "go.ready"
    while process.poll() is None and not ready.exists() and time.monotonic() < latest_s:
        time.sleep(0.02)


def on_gpu(script: Script, order: list[int], seconds: float) -> dict[str, float | None]:
    """Samples per second at each size. While one runs, the next one loads torch."""
    rates: dict[str, float | None] = {}
    with scratch_folder() as name, contextlib.ExitStack() as ends:
        folders = {size: Path(name) / str(size) for size in order}
        processes = {}
        for place, size in enumerate(order):
            for other in order[place : place + AHEAD]:
                if other not in processes:
                    folders[other].mkdir()
                    processes[other] = started(script, other, seconds, folders[other])
                    ends.callback(killed, processes[other])
            # None begins while another one loads: that takes cores.
            for other in order[place : place + AHEAD]:
                loaded(folders[other], processes[other])
            (folders[size] / "go").touch()
            with contextlib.suppress(subprocess.TimeoutExpired):
                processes[size].wait(GPU_LIMIT_S + seconds)
            killed(processes[size])
            told = read_stamps(folders[size] / "stamps")
            rates[str(size)] = None
            if len(told) == 3:
                begun_s, steps, ended_s = told
                rates[str(size)] = steps * size * script.batches / (ended_s - begun_s)
    return rates


def one_pass(script: Script, sizes: list[int], seconds: float, seed: int) -> dict[str, Any]:
    """Each size once, in an order of its own."""
    order = list(sizes)
    random.Random(seed).shuffle(order)
    load = os.getloadavg()[0]
    measured = on_cpu if script.device == "cpu" else on_gpu
    return {"load": load, "rates": measured(script, order, seconds)}


def truth_of(row: dict[str, Any]) -> dict[int, float]:
    """The median over the passes, by size."""
    return medians(row["passes"])


def medians(passes: list[dict[str, Any]]) -> dict[int, float]:
    """The median of what these passes have of each size."""
    rates: dict[int, list[float]] = {}
    for each in passes:
        for size, rate in each["rates"].items():
            if rate:
                rates.setdefault(int(size), []).append(rate)
    return {size: statistics.median(values) for size, values in sorted(rates.items())}


def regrets_of(row: dict[str, Any], size: int) -> list[float]:
    """What a size leaves of the best one's throughput, in each pass that has it; the best is chosen
    by the other passes. Below 0 is luck."""
    left = []
    for each in row["passes"]:
        rates = medians([each])
        chosen_by = medians([other for other in row["passes"] if other is not each])
        both = rates.keys() & chosen_by.keys()
        if both and size in rates:
            best = max(both, key=lambda other: chosen_by[other])
            left.append(1 - rates[size] / rates[best])
    return left


def regret_of(row: dict[str, Any], size: int) -> tuple[float, float]:
    """The mean over the passes, and half of its 90 % interval; infinite of one pass."""
    left = regrets_of(row, size)
    mean = statistics.fmean(left)
    if len(left) < 2:
        return mean, math.inf
    half = student(len(left) - 1, 0.9) * statistics.stdev(left) / math.sqrt(len(left))
    return mean, half


def of_one_pass(row: dict[str, Any]) -> float | None:
    """Mean regret of the size that a single pass says by the rule of the default goal: the smallest
    one within 5 % of its best. What changes between the passes, no measurement of one foretells.

    `None` of less than three passes: one says a size, and two that have it rate it.
    """
    left = []
    for said_by in row["passes"]:
        others = [each for each in row["passes"] if each is not said_by]
        rates = medians([said_by])
        near = {size for size, rate in rates.items() if rate >= 0.95 * max(rates.values())}
        size = min(near.intersection(*(medians([each]) for each in others)), default=None)
        if len(others) > 1 and size is not None:
            left += regrets_of({"passes": others}, size)
    return statistics.fmean(left) if left else None


# one run -------------------------------------------------------------------------------------


def one_run(script: Script, budget_s: float, busy: int, kept: Path | None) -> dict[str, Any]:
    """`batchadvisor run` as a user types it, with its answer as JSON.

    Args:
        kept: where the run's folder stays; `None` removes it.
    """
    with scratch_folder() as folder, loads.neighbours(busy):
        command = [sys.executable, "-m", "batchadvisor", "run", "--json", "--quiet"]
        command += ["--device", script.device, "--budget", f"{budget_s:g}s"]
        command += ["-o", str(kept or f"{folder}/run")]
        command += [str(script.path), *script.words]
        if script.door == "template":
            command.append(f"{script.option}={{batch_size}}")
        begun_s = time.monotonic()
        where = place_of(script, Path(folder))
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=where,
            env={**os.environ, **variables_of(script)},
        )  # fmt: skip
        row: dict[str, Any] = {"wall_s": time.monotonic() - begun_s, "exit_code": done.returncode}
    if not done.stdout:
        return row | {"error": (done.stderr.strip().splitlines() or ["no output"])[-1]}
    printed = json.loads(done.stdout)
    advice, record = printed["advice"], printed["record"]
    chosen = advice["recommended"]
    keys = ("headline", "reason", "change", "sureness", "standing")
    return row | {
        "recommended": chosen and chosen["batch_size"],
        "against_own": advice.get("against_own"),
        # The paths of this machine are nobody's business.
        **{key: without_paths(advice.get(key), HERE.parent) for key in keys},
        "findings": [finding["rule"] for finding in advice["findings"]],
        "search_s": record["search_s"],
        "sizes": [
            {key: size.get(key) for key in ("batch_size", "samples_per_s")}
            for size in advice["sizes"]
        ],
        "stop_reason": record["stop_reason"],
    }


def judged(row: dict[str, Any], kind: str, script: Script) -> dict[str, Any]:
    """Regret of a run, and what became of it."""
    run = row["runs"][kind]
    size, (own_regret, _) = run.get("recommended"), regret_of(row, script.own)
    gain = 1 / max(1e-3, 1 - own_regret)
    if size is None:
        return {"regret": None, "half": None, "gain": gain, "noisy": False, "worse": False}
    truth, (regret, half) = truth_of(row), regret_of(row, size)
    return {
        "regret": regret,
        "half": half,
        "gain": gain,
        "noisy": run["standing"] == "too noisy",
        "worse": truth[size] < (1 - NO_WORSE) * truth[script.own],
    }


# the whole -----------------------------------------------------------------------------------


def measure_all(options: argparse.Namespace, results: Results) -> None:
    """What is missing, script by script: a pass, the runs, a pass with the recommended sizes."""
    rows = results.data.setdefault("scripts", {})
    results.data["budget_s"] = options.budget
    results.data["variables_on_cpu"] = KEEPS_MEMORY
    for name in options.scripts:
        script = SCRIPTS[name]
        if script.cloned:
            script = script._replace(path=options.clones.resolve() / script.path)
        row = rows.setdefault(name, {"own": script.own, "passes": [], "runs": {}})
        grid = list(script.sizes)
        if not row["passes"]:
            row["passes"].append(one_pass(script, grid, options.seconds, 0))
            results.save()
        missing = [kind for kind in options.conditions if kind not in row["runs"]]
        for kind in missing:
            row["runs"][kind] = one_run(
                script,
                options.budget,
                CONDITIONS[kind],
                options.keep and options.keep.resolve() / slug(f"{name} {kind}"),
            )
            results.save()
        found = {run.get("recommended") for run in row["runs"].values()} - {None}
        while len(row["passes"]) < options.passes or not found <= truth_of(row).keys():
            truth = truth_of(row)
            floor = NEAR * max(truth.values())
            near = {size for size, rate in truth.items() if rate >= floor}
            sizes = sorted({*near, script.own, *found})
            row["passes"].append(one_pass(script, sizes, options.seconds, len(row["passes"])))
            results.save()
        for kind in missing:
            told = judged(row, kind, script)
            headline = row["runs"][kind].get("headline") or row["runs"][kind].get("error")
            lost = "-" if told["regret"] is None else f"{told['regret']:.1%} ±{told['half']:.1%}"
            say(f"{name}, {kind}: regret {lost}: {headline}")


PAGES = (HERE.parent / "docs" / "benchmarks.md", HERE.parent / "docs" / "reading.md")
WORDS = {
    "quiet": "a quiet machine",
    "busy1": "beside one busy process",
    "busy3": "beside three",
    "busy6": "beside six",
}


def all_judged(data: dict[str, Any], kind: str) -> dict[str, dict[str, Any]]:
    """Regret and the rest of every run of a condition, by script."""
    return {name: judged(row, kind, SCRIPTS[name]) for name, row in rows_with(data, kind).items()}


def rows_with(data: dict[str, Any], kind: str) -> dict[str, dict[str, Any]]:
    """Scripts with a run of a condition and a second pass: one alone cannot choose and rate."""
    return {
        name: row
        for name, row in data["scripts"].items()
        if kind in row["runs"] and len(row["passes"]) > 1
    }


def summary_of(told: dict[str, dict[str, Any]]) -> dict[str, int]:
    """How many answers were good, by each measure."""
    known = [each for each in told.values() if each["regret"] is not None]
    large = [each for each in told.values() if each["gain"] >= LARGE_GAIN]
    found = [
        each
        for each in large
        if each["regret"] is not None and each["regret"] <= 1 - LARGE_GAIN / each["gain"] + 1e-9
    ]
    return {
        "scripts": len(told),
        "answered": len(known),
        "within 5 %": sum(each["regret"] <= 0.05 for each in known),
        "within 10 %": sum(each["regret"] <= 0.10 for each in known),
        "surely beyond 5 %": sum(each["regret"] - each["half"] > 0.05 for each in known),
        "too noisy": sum(each["noisy"] for each in known),
        "worse than own": sum(each["worse"] for each in known),
        "gains of x1.5": len(large),
        "of these found": len(found),
    }


def summary_table(data: dict[str, Any]) -> str:
    """The measures of each condition, in Markdown."""
    rows = {kind: summary_of(told) for kind in CONDITIONS if (told := all_judged(data, kind))}
    names = list(next(iter(rows.values())))
    lines = [f"| | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for kind, summary in rows.items():
        lines.append(f"| {WORDS[kind]} | {' | '.join(str(summary[name]) for name in names)} |")
    return "\n".join(lines)


def scripts_table(data: dict[str, Any]) -> str:
    """What was answered to each script, in Markdown: the size, and its regret."""
    kinds = [kind for kind in CONDITIONS if all_judged(data, kind)]
    head = [
        "script",
        "own",
        "best",
        "gain",
        "one pass of the sweep",
        *(WORDS[kind] for kind in kinds),
    ]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name, row in data["scripts"].items():
        if not row["runs"]:  # it was begun, no more
            continue
        truth = truth_of(row)
        best = max(truth, key=lambda size: truth[size])
        cells = [name, str(row["own"]), str(best)]
        told = {kind: all_judged(data, kind).get(name) for kind in kinds}
        gain = next((each["gain"] for each in told.values() if each), None)
        cells.append("-" if gain is None else f"x{gain:.2f}")
        swept = of_one_pass(row)
        cells.append("-" if swept is None else f"{round(swept, 2) + 0:.0%}")
        for kind, each in told.items():
            if each is None:
                cells.append("not run")
                continue
            answer = row["runs"][kind].get("recommended") or "no answer"
            lost = ""
            if each["regret"] is not None:
                lost = f", {each['regret']:.0%} ±{each['half']:.0%}"
            cells.append(f"{answer}{lost}{', too noisy' if each['noisy'] else ''}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def between_marks(text: str, name: str, new: str) -> str:
    """A page with another text between the marks of that name."""
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}{new}\n{end}{after}"


def write_pages(data: dict[str, Any]) -> None:
    """The figures on the page of measured costs and on the one about answers."""
    costs, reading = PAGES
    text = between_marks(costs.read_text(), "regret", summary_table(data))
    costs.write_text(between_marks(text, "regret by script", scripts_table(data)))
    reading.write_text(between_marks(reading.read_text(), "regret", summary_table(data)))


def report(data: dict[str, Any]) -> str:
    """The printed tables."""
    lines = header(data, f"regret of batchadvisor run --budget {data['budget_s']:g}s")
    summary: dict[str, Any] = {}
    for kind in CONDITIONS:
        rows = []
        for name, row in rows_with(data, kind).items():
            run, script, truth = row["runs"][kind], SCRIPTS[name], truth_of(row)
            told = judged(row, kind, script)
            best = max(truth, key=lambda size: truth[size])
            lost = "-" if told["regret"] is None else f"{told['regret']:.1%} ±{told['half']:.1%}"
            marks = [word for word in ("noisy", "worse") if told[word]]
            gain, wall = f"x{told['gain']:.2f}", f"{run['wall_s']:.0f}"
            answer, sureness = run.get("recommended") or "-", run.get("sureness") or "-"
            rows.append(
                (name, script.own, answer, best, gain, lost, wall, sureness, ", ".join(marks))
            )
        if not rows:
            continue
        summary[kind] = summary_of(all_judged(data, kind))
        columns = (kind, "own", "answer", "best", "gain", "regret", "wall s", "sureness", "")
        told_line = ", ".join(f"{key} {value}" for key, value in summary[kind].items())
        lines += [table(columns, rows), told_line, ""]
    data["summary"] = summary
    lines.append("samples/s of the scripts by themselves, median of the passes")
    for name, row in data["scripts"].items():
        truth = truth_of(row)
        rates = "  ".join(f"{size}: {rate:.4g}" for size, rate in truth.items())
        lines.append(f"  {name}: {rates}")
    return "\n".join(lines)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--conditions", default=",".join(CONDITIONS), help="(%(default)s)")
    parser.add_argument("--scripts", default="", help="a part, separated by semicolons (all)")
    parser.add_argument("--device", default="cpu", help="on which scripts train (%(default)s)")
    parser.add_argument("--clones", type=Path, help="folder of repositories, for scripts of these")
    parser.add_argument("--budget", type=float, default=30.0, help="of a run (%(default)s s)")
    parser.add_argument(
        "--seconds", type=float, default=2.5, help="of a size's truth (%(default)s)"
    )
    parser.add_argument(
        "--passes", type=int, default=4, help="over the sizes of the truth (%(default)s)"
    )
    parser.add_argument("--resume", type=Path, help="results of an earlier part, as JSON")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the results")
    parser.add_argument("--keep", type=Path, help="folder in which the runs stay")
    parser.add_argument("--no-results", action="store_true", help="print only")
    parser.add_argument("--page", action="store_true", help="only write the pages, of --resume")
    options = parser.parse_args()
    options.conditions = options.conditions.split(",")
    known = [
        name
        for name, script in SCRIPTS.items()
        if script.device == options.device and (options.clones or not script.cloned)
    ]
    options.scripts = [name.strip() for name in options.scripts.split(";") if name] or known
    if not set(options.conditions) <= set(CONDITIONS) or not set(options.scripts) <= set(known):
        parser.error(f"conditions: {', '.join(CONDITIONS)}; scripts: {'; '.join(known)}")
    if options.page:
        if options.resume is None:
            parser.error("--page needs the results: --resume FILE")
        write_pages(json.loads(options.resume.read_text()))
        return
    folder = None if options.no_results else options.results
    results = Results(folder, "regret", options.resume)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what runs meanwhile is ended too
    try:
        measure_all(options, results)
        results.data["state"] = "finished"
    except KeyboardInterrupt:
        results.data["state"] = "interrupted"
    results.finish(report(results.data))
    sys.exit(0 if results.data["state"] == "finished" else 1)


if __name__ == "__main__":
    main()
