"""Scores the verdicts on steps whose dominating cause is known.

    python bench/verdicts.py --seed 1

Steps are random mixtures: every cause is in each of them, one is drawn larger. What dominates is
found by playing the step again without each cause (`synthetic_steps`); a step counts only where
one cause costs at least a fifth of it and twice as much as any other, or where none costs 8 %.
Half of the traces are judged alone, as `batchadvisor analyze` does, half with the times of two
more sizes and what ran out of memory, as `batchadvisor run` does; then CPU records without a GPU.

Prints the seed and the confusion matrix, and writes both to `bench/results/verdicts.*`.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import subprocess
import tempfile
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from batchadvisor.advisor.explain import limits
from batchadvisor.advisor.measured import scaling
from batchadvisor.advisor.measured import thresholds as numbers
from verdict_cases import KINDS, MAKERS

HERE = Path(__file__).resolve().parent
GOAL_WRONG, GOAL_OPEN = 0.02, 0.25


def score(seed: int, wanted: dict[str, int]) -> dict[str, Any]:
    """Draws steps until there are enough of each kind, and judges them."""
    matrix: Counter[tuple[str, str]] = Counter()
    parts: dict[str, Counter[str]] = {}
    unclear = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, number in wanted.items():
            rng = random.Random(f"{seed} {name}")
            kinds = ("input", "host", "none") if name == "CPU run" else KINDS
            done, part = 0, parts.setdefault(name, Counter())
            while done < number:
                pair = MAKERS[name](rng, kinds[done % len(kinds)], Path(folder))
                if pair is None:
                    unclear += 1
                    continue
                done += 1
                matrix[pair] += 1
                truth, said = pair
                part[
                    "right" if truth == said else "cannot tell" if "cannot" in said else "wrong"
                ] += 1
    total = sum(matrix.values())
    left_open = sum(count for (_, said), count in matrix.items() if said == "cannot tell")
    wrong = sum(n for (truth, said), n in matrix.items() if said not in (truth, "cannot tell"))
    return {
        "seed": seed,
        "num_steps": total,
        "num_unclear_left_out": unclear,
        "wrong_share": wrong / total,
        "cannot_tell_share": left_open / total,
        "goals": {"wrong_share": GOAL_WRONG, "cannot_tell_share": GOAL_OPEN},
        "by_input": {name: dict(part) for name, part in parts.items()},
        "confusion": [
            {"truth": truth, "verdict": said, "count": count}
            for (truth, said), count in sorted(matrix.items())
        ],
    }


def thresholds() -> dict[str, float]:
    """The numbers that the rules go by."""
    return {
        f"{module.__name__.rpartition('.')[2]}.{name}": value
        for module in (limits, numbers, scaling)
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, (int, float))
    }


def text_of(result: dict[str, Any]) -> str:
    """The confusion matrix and the score."""
    rows = sorted({cell["truth"] for cell in result["confusion"]})
    columns = sorted({cell["verdict"] for cell in result["confusion"]} | set(rows))
    counts = {(cell["truth"], cell["verdict"]): cell["count"] for cell in result["confusion"]}
    width = max(map(len, columns)) + 2
    title = "true / said"
    lines = [f"{title:16}" + "".join(f"{column:>{width}}" for column in columns)]
    for row in rows:
        cells = "".join(f"{counts.get((row, column), 0) or '.':>{width}}" for column in columns)
        lines.append(f"{row:16}{cells}")
    lines += [
        "",
        (
            f"seed {result['seed']}: {result['num_steps']} generated steps, "
            f"{result['num_unclear_left_out']} without a clear cause left out"
        ),
        (
            f"wrong: {result['wrong_share']:.1%} (goal at most {GOAL_WRONG:.0%}), "
            f"cannot tell: {result['cannot_tell_share']:.1%} (goal at most {GOAL_OPEN:.0%})"
        ),
        *(f"{name}: {part}" for name, part in result["by_input"].items()),
        f"code {result['commit']}, {result['date']}; synthetic steps, no device was measured",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--steps", type=int, default=300, help="generated steps (default 300)")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args()
    third = options.steps // 3
    wanted = {"trace alone": third, "GPU run": third, "CPU run": options.steps - 2 * third}
    print(f"seed {options.seed}")
    result = score(options.seed, wanted)
    git = ["git", "-C", str(HERE), "describe", "--always", "--dirty", "--exclude", "*"]
    result |= {
        "commit": subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip(),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "thresholds": thresholds(),
    }
    text = text_of(result)
    print(text)
    (options.output / "verdicts.json").write_text(json.dumps(result, indent=1) + "\n")
    (options.output / "verdicts.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
