"""How often `compare` cries wolf, and how often it finds a step that became 5 % longer.

    python bench/gate.py --minutes 20 --out bench/results
    python bench/gate.py --runs FOLDER            # judges runs that were measured before
    python bench/gate.py --simulate               # how many rounds find it, by arithmetic alone
    python bench/gate.py --planted 1              # on the GPU in software: noise that is known

One cheap script is measured again and again by `batchadvisor run`, each time in fresh processes. A
round is four runs in a drawn order: twice the script as it is, once with 5 % more layers, once with
a sleep of 5 % of its step. A thousand pairs of groups cannot be measured one by one: they are drawn
from the rounds, without replacement within a group. Groups share rounds, so the counts are those of
one machine and one hour, and not of a thousand independent days.

Of the script against itself the two runs of each round change sides by lot; every alarm is false.
"Blocks" are groups in which all runs of one side came before all of the other: all that there are.

With `--planted` the whole chain runs on the GPU in software (scripts/software_gpu). Each run has a
card of its own: the cards' speeds differ by so many per cent from run to run, Gaussian, and drift
together over the rounds. Then the noise is planted, and the counts hold for machines that are as
steady as that. Nothing of it is measured on a GPU.
"""

from __future__ import annotations

import argparse
import importlib
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median, stdev
from typing import Any

from batchadvisor.advisor.measured.speeds import SURE
from batchadvisor.features.gate.evidence import ROUNDS_NEEDED, Run
from batchadvisor.features.gate.judge import judge
from batchadvisor.features.gate.session import condition_of
from batchadvisor.session.recording.store import read_record
from batchadvisor.spread import paired_spread
from common import HERE, RESULTS, Results, header, say, table

SCRIPT = HERE / "planted/steps.py"
SIZE = 64
LAYERS, MORE_LAYERS = 20, 21
SHARE = 0.05
RUN = ("--no-profile", "--quiet", "--sizes", str(SIZE))
ALARMS = ("step_time>+0%", "step_time>+2%", "step_time>+5%", "peak_memory>+0%", "peak_memory>+3%")
FOUND = "step_time>+2%"
SOFTWARE_GPU = HERE.parent / "scripts/software_gpu"
TFLOPS = 0.0124
"""Of a card that is as fast as the middle one: a step is of 40 ms, of which its host takes 4."""
DRIFT, DRIFT_ROUNDS = 0.03, 12
"""How far all cards of a round drift from the middle, and how many rounds it takes to come back."""
GROUPS = (1, 4, 7, 8, 10, 12, 16, 20, 24, 32)
DRAWS = 1000


class Cpu:
    """This machine's processor, as it is."""

    name = "cpu"

    def variables(self, number: int) -> dict[str, str]:
        """Of the environment of a round's next run."""
        del number  # it is as fast as it is
        return dict(os.environ)


class Cards:
    """GPUs in software, another one for each run.

    Args:
        folder: of the library and of what states the cards.
        deviation: of the log of a card's speed.
    """

    name = "cuda"

    def __init__(self, folder: Path, deviation: float, seed: int) -> None:
        sys.path.insert(0, str(SOFTWARE_GPU))
        self._module = importlib.import_module("library")
        folder.mkdir()
        self._folder, self._library = folder, self._module.build(folder)
        self._deviation, self._draw = deviation, random.Random(f"cards {seed}")

    def variables(self, number: int) -> dict[str, str]:
        """Of the environment of a round's next run."""
        drift = DRIFT * math.sin(math.tau * number / DRIFT_ROUNDS)
        faster = math.exp(drift + self._draw.gauss(0, self._deviation))
        card = self._folder / "card.conf"
        card.write_text(
            f"name = planted\nfp32_tflops = {TFLOPS * faster:.8f}\nhalf_efficiency_gflop = 0\n"
        )
        return dict(self._module.environment(self._library, card))


def measure(folder: Path, arguments: argparse.Namespace, data: dict[str, Any]) -> None:
    """Rounds until the time is over; a round that would not end by then is not begun."""
    device: Cpu | Cards = Cpu()
    if arguments.planted is not None:
        device = Cards(folder / "software_gpu", arguments.planted / 100, arguments.seed)
    end_s = time.monotonic() + 60 * arguments.minutes
    draw = random.Random(arguments.seed)
    first = run(folder / "calibration", [], arguments, device)
    step_ms = 1000 * step_s(first)
    variants = {
        "same": [],
        "again": [],
        "layer": ["--layers", str(MORE_LAYERS)],
        "sleep": ["--sleep-ms", f"{SHARE * step_ms:.4f}"],
    }
    data |= {"step_ms": step_ms, "variants": variants}
    longest_s, number = 0.0, 0
    while time.monotonic() + longest_s < end_s:
        began_s = time.monotonic()
        for name in draw.sample(list(variants), len(variants)):
            run(folder / name / f"{number:03}", variants[name], arguments, device, number)
        number += 1
        longest_s = max(longest_s, time.monotonic() - began_s)
        say(f"{number} rounds, {max(0.0, end_s - time.monotonic()):.0f} s left")
    data["round_s"] = longest_s


def run(
    folder: Path,
    options: Sequence[str],
    arguments: argparse.Namespace,
    device: Cpu | Cards,
    number: int = 0,
) -> Run:
    """One run of the script in fresh processes, in a round of that number."""
    limits = ("--budget", arguments.budget, "--precision", arguments.precision)
    own = ("--device", device.name, *limits, "-o", str(folder))
    command = [sys.executable, "-m", "batchadvisor", "run", *RUN, *own]
    environment = {**device.variables(number), "OMP_NUM_THREADS": str(arguments.threads)}
    subprocess.run(
        [*command, str(SCRIPT), *options],
        check=True,
        env=environment,
        stdout=subprocess.DEVNULL,
        cwd=folder.parent if folder.parent.exists() else None,
    )
    return Run(read_record(folder), Path(folder.parent.name) / folder.name)


def rounds_in(folder: Path) -> dict[str, list[Run]]:
    """The runs of each variant, by round; of whole rounds alone."""
    names = ("same", "again", "layer", "sleep")
    each = [
        {path.name for path in (folder / name).glob("*") if (path / "record.json").is_file()}
        for name in names
    ]
    numbers = sorted(set.intersection(*each))
    return {
        name: [Run(read_record(folder / name / one), Path(name) / one) for one in numbers]
        for name in names
    }


def step_s(run: Run) -> float:
    """The median step of its timed trial."""
    times = [
        trial.step_s.median
        for trial in run.record.trials
        if trial.kind == "timed" and trial.step_s is not None
    ]
    return median(times)


def groups(
    rounds: dict[str, list[Run]], other: str, num: int, draw: random.Random
) -> Iterator[tuple[list[Run], list[Run]]]:
    """Pairs of groups of so many rounds each; of the script against itself in drawn roles."""
    count = len(rounds["same"])
    for _ in range(DRAWS):
        before, after = [], []
        for place in sorted(draw.sample(range(count), num)):
            pair = [rounds["same"][place], rounds[other][place]]
            if other == "again" and draw.random() < 0.5:
                pair.reverse()
            before.append(pair[0])
            after.append(pair[1])
        yield before, after


def blocks(rounds: dict[str, list[Run]], num: int) -> Iterator[tuple[list[Run], list[Run]]]:
    """Neighbouring groups of the script as it is, one wholly before the other, in both roles."""
    runs = sorted(
        [*rounds["same"], *rounds["again"]], key=lambda run: (run.record.started_at, run.path)
    )
    for start in range(len(runs) - 2 * num + 1):
        first, second = runs[start : start + num], runs[start + num : start + 2 * num]
        yield first, second
        yield second, first


def counted(pairs: Iterator[tuple[list[Run], list[Run]]], texts: Sequence[str]) -> dict[str, Any]:
    """How many pairs there are, and how many exceed each condition or leave it open."""
    conditions = [condition_of(text) for text in texts]
    count = 0
    exceeded, opened = dict.fromkeys(texts, 0), dict.fromkeys(texts, 0)
    for before, after in pairs:
        gate = judge(before, after, conditions)
        assert gate.results, gate.reasons
        count += 1
        for result in gate.results:
            assert result.condition is not None
            exceeded[result.condition.text] += result.outcome == "exceeded"
            opened[result.condition.text] += result.outcome == "cannot tell"
    return {"pairs": count, "exceeded": exceeded, "cannot tell": opened}


def evaluate(rounds: dict[str, list[Run]], data: dict[str, Any]) -> None:
    """Draws and judges, for each number of rounds that there are enough of."""
    draw = random.Random(data["seed"])
    count = len(rounds["same"])
    data["rounds"] = count
    for num in (num for num in GROUPS if num <= count):
        data["groups"][str(num)] = {
            "again": counted(groups(rounds, "again", num, draw), ALARMS),
            "blocks": counted(blocks(rounds, num), ALARMS),
            "layer": counted(groups(rounds, "layer", num, draw), [FOUND]),
            "sleep": counted(groups(rounds, "sleep", num, draw), [FOUND]),
        }
        say(f"groups of {num} judged")


def rounds_needed(deviation: float, share: float = 0.95) -> int:
    """The fewest rounds that find a step 5 % longer under `FOUND`, in so many cases.

    Args:
        deviation: of the log of a step from run to run; Gaussian.
    """
    draw = random.Random(0)
    limit, change, apart = math.log1p(condition_of(FOUND).limit), math.log1p(SHARE), 2**0.5
    for num in range(ROUNDS_NEEDED, 100):
        found = 0
        for _ in range(DRAWS):
            logs = [draw.gauss(change, apart * deviation) for _ in range(num)]
            spread = paired_spread(logs, SURE)
            found += spread is not None and spread.low > limit
        if found >= share * DRAWS:
            return num
    raise AssertionError(deviation)


def simulated() -> str:
    """A table of the rounds that are needed."""
    rows = [[f"{share} %", rounds_needed(share / 100)] for share in (0.5, 1, 1.5, 2, 2.5, 3)]
    return table(["from run to run", f"rounds that find 5 % under {FOUND} in 95 of 100"], rows)


def raw(rounds: dict[str, list[Run]]) -> list[dict[str, Any]]:
    """What was measured: a row a run."""
    return [
        {
            "variant": name,
            "round": number,
            "started_at": run.record.started_at,
            "elapsed_s": run.record.elapsed_s,
            "step_s": [
                [trial.step_s.median, trial.step_s.low, trial.step_s.high, trial.step_s.num_samples]
                for trial in run.record.trials
                if trial.kind == "timed" and trial.step_s is not None
            ],
            "peak_bytes": [
                trial.memory.peak_bytes for trial in run.record.trials if trial.memory is not None
            ],
        }
        for name, runs in rounds.items()
        for number, run in enumerate(runs)
    ]


def printed(data: dict[str, Any], rounds: dict[str, list[Run]]) -> str:
    """The tables."""
    steps = {name: [step_s(run) for run in runs] for name, runs in rounds.items()}
    same = median([*steps["same"], *steps["again"]])
    lines = header(data, f"compare: {data['rounds']} rounds of {SCRIPT.name}, batch size {SIZE}")
    if data["planted"] is not None:
        wanders = f"{data['planted']:g} % from run to run"
        drifts = f"{100 * DRIFT:g} % over {DRIFT_ROUNDS} rounds"
        lines.append(f"on the GPU in software, whose speed is planted: {wanders}, {drifts}")
    elapsed = median(run.record.elapsed_s for runs in rounds.values() for run in runs)
    lines += [
        f"a run takes {elapsed:.1f} s, a step {1000 * same:.2f} ms",
        table(
            ["variant", "step ms", "over the same", "from run to run"],
            [
                [
                    name,
                    f"{1000 * median(values):.3f}",
                    f"x{median(values) / same:.3f}",
                    f"{100 * stdev(values) / median(values):.1f} %",
                ]
                for name, values in steps.items()
                if len(values) > 1
            ],
        ),
        "",
        "False alarms of the script against itself, per cent of pairs; (cannot tell)",
        *_counts(data, ("again", "blocks"), ALARMS),
        "",
        f"Found, per cent of pairs under {FOUND}; (cannot tell)",
        *_counts(data, ("layer", "sleep"), [FOUND]),
    ]
    lines += ["", "Simulated, Gaussian", simulated()]
    return "\n".join(lines)


def _counts(data: dict[str, Any], kinds: Sequence[str], texts: Sequence[str]) -> list[str]:
    rows = []
    for num, counts in data["groups"].items():
        for kind in kinds:
            count = counts[kind]
            pairs = count["pairs"]
            if pairs:
                shares = [
                    f"{100 * count['exceeded'][text] / pairs:.1f} "
                    f"({100 * count['cannot tell'][text] / pairs:.0f})"
                    for text in texts
                ]
                rows.append([f"{num} {kind}", pairs, *shares])
    return table(["rounds", "pairs", *texts], rows).split("\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=20.0, help="for measuring")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument("--runs", type=Path, help="runs of an earlier call: only judge them")
    parser.add_argument("--keep", type=Path, help="folder in which the runs stay")
    parser.add_argument("--budget", default="8s", help="of a run")
    parser.add_argument("--precision", default="1%", help="of a run")
    parser.add_argument(
        "--planted",
        type=float,
        metavar="PERCENT",
        help="on the GPU in software, whose speed differs by so much from run to run",
    )
    parser.add_argument("--threads", type=int, default=1, help="of the script")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--simulate", action="store_true", help="measure nothing")
    arguments = parser.parse_args()
    if arguments.simulate:
        print(simulated())
        return

    results = Results(arguments.out, "gate" if arguments.planted is None else "gate_planted")
    data = results.data
    options = {
        name: getattr(arguments, name)
        for name in ("budget", "precision", "threads", "seed", "planted")
    }
    data |= {**options, "minutes": arguments.minutes, "groups": {}}
    folder = arguments.runs or arguments.keep or Path(tempfile.mkdtemp(prefix="batchadvisor-gate-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        if arguments.runs is None:
            measure(folder.resolve(), arguments, data)
        rounds = rounds_in(folder)
        data["runs"] = raw(rounds)
        results.save()
        evaluate(rounds, data)
        data["state"] = "finished"
        results.finish(printed(data, rounds))
    finally:
        if arguments.runs is None and arguments.keep is None:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
