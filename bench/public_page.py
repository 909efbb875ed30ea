"""Makes a table and docs/works-with.md of what bench/public_scripts.py recorded."""

from __future__ import annotations

import textwrap
from collections import Counter
from typing import Any

from common import HERE, header, table
from public_verdicts import advice, commas, judged, swept, written

PAGE = HERE.parent / "docs" / "works-with.md"
DEFAULT_BUDGET = "120s"
_WIDTH = 118
_VERDICTS = {
    "answered": "answered without a flag",
    "told": "told why there is no size to choose",
    "later": "told to go on, with no answer in this budget",
    "flag": "answered with a command to type",
    "wrong": "answered wrongly",
    "failed": "ended with an error that does not help",
    "slow": "took too long",
    "skipped": "not run",
}
"""In the order in which they are counted."""


# the table -----------------------------------------------------------------------------------


def report(data: dict[str, Any], listed: dict[str, Any]) -> str:
    """A line a script, the counts, and what is to be said of those without a right answer."""
    lines = header(data, "Scripts as people run them: what `batchadvisor run` answers")
    lines += [", ".join(f"{name} {version}" for name, version in data["versions"].items()), ""]
    cells, notes = [], []
    for name, row in data["rows"].items():
        verdict, checks = judged(listed[name], row)
        sweep = swept(row)
        cells.append(
            (
                name,
                verdict,
                _cell(row.get("own")),
                _cell(row.get("recommended")),
                _cell(row.get("wall_s")),
                "-" if sweep is None else f"{sweep.share:.0%} of {sweep.best}",
                written(row.get("source")),
            )
        )
        wrong = [f"{what} {said}" for what, said in checks.items() if said != "right"]
        if wrong or verdict not in ("answered", "told"):
            said = "; ".join(wrong) or _last_word(row)
            notes.append(f"{name}: {verdict}. {textwrap.shorten(said, 400)}")
    headings = ("script", "verdict", "own", "advised", "seconds", "sweep", "own size is written at")
    lines += [table(headings, cells), ""]
    for title, ours in (("real", False), ("ours", True)):
        lines.append(f"{title}: {commas(_counts(data, listed, ours))}")
    lines.append(f"of the answers to real ones: {commas(_advice(data['rows'], listed))}")
    return "\n".join([*lines, "", *notes])


def _last_word(row: dict[str, Any]) -> str:
    """What a run without an answer ended with."""
    error = row.get("error")
    if error is None:
        return str(row.get("headline", ""))
    return "Error: " + error.rpartition("Error: ")[2] if "\nError: " in error else str(error)


def _cell(value: Any) -> str:
    return "-" if value is None else str(value)


def _counts(data: dict[str, Any], listed: dict[str, Any], ours: bool) -> list[str]:
    verdicts = Counter(
        judged(listed[name], row).verdict
        for name, row in data["rows"].items()
        if name.startswith("ours/") == ours
    )
    return [f"{verdicts[key]} {words}" for key, words in _VERDICTS.items() if verdicts[key]]


def _advice(rows: dict[str, Any], listed: dict[str, Any]) -> list[str]:
    kinds = Counter(
        advice(row)
        for name, row in rows.items()
        if listed[name].get("truth") and judged(listed[name], row).verdict == "answered"
    )
    return [f"{num} {words}" for words, num in kinds.most_common()] or ["none is right"]


# the page ------------------------------------------------------------------------------------


def page(data: dict[str, Any], beside: dict[str, Any] | None, listed: dict[str, Any]) -> str:
    """docs/works-with.md.

    Args:
        beside: the results beside busy processes, if there are any.
    """
    rows = {name: row for name, row in data["rows"].items() if not name.startswith("ours/")}
    ours = {name: row for name, row in data["rows"].items() if name.startswith("ours/")}
    repos = {listed[name].get("repo") for name in rows} - {None}
    dates = sorted({row["date"][:10] for row in rows.values()})
    env = data["environment"]
    loads = [row["load"] for row in rows.values()]
    parts = [
        "# Scripts that it works with",
        _paragraph(
            f"{len(rows)} real, unmodified scripts, out of {len(repos)} repositories at named "
            "commits and out of packages, were run as their authors' users type them, after "
            f"`batchadvisor run` with no other option, {_budgets(rows)}: "
            f"{commas(_counts(data, listed, ours=False))}."
        ),
        _paragraph(f"Of the answers, {commas(_advice(rows, listed))}."),
        *_beside(beside, listed),
        _paragraph(
            "Each answer was compared with what a person had read in the script's source and "
            "written into [a list](../bench/public_scripts.yaml): the loader that trains, the own "
            "size, the size that reached the training steps, and the line that sets it. One that "
            "differs in any of them is wrong, whatever it advises. "
            "[`bench/public_scripts.py`](../bench/public_scripts.py) runs them from a folder of "
            "clones; it has made this page too."
        ),
        "\n".join(_real_table(rows, listed)),
        *_remarks(rows, listed),
        *_sweeps(rows),
        "## How they were run",
        _paragraph(
            f"{_between(dates)} on {env['hardware']}, under a load of "
            f"{min(loads):.1f} to {max(loads):.1f} from other programs and from the run before. "
            f"Torch is {env['versions']['torch']}; the other versions are in the [raw "
            "results](../bench/results/public-scripts.txt). Data is made up in the format that "
            "the script reads, by `bench/made_data.py`, and so are pretrained weights. torchvision "
            "is the real one without its compiled operators, which do not load beside this build "
            "of torch. Where a package would download, one in `bench/stand_ins` takes its place: "
            f"{_stand_ins(rows, listed)}."
        ),
    ]
    if ours:
        parts += [
            "## Written by us",
            _paragraph(
                f"{len(ours)} more scripts are ours, in the style of a project; they are counted "
                f"apart: {commas(_counts(data, listed, ours=True))}. They are in `bench/public`."
            ),
            "\n".join(_our_table(ours, listed)),
        ]
    return "\n\n".join(parts) + "\n"


def _beside(beside: dict[str, Any] | None, listed: dict[str, Any]) -> list[str]:
    if beside is None:
        return []
    num, counts = beside["busy_processes"], commas(_counts(beside, listed, ours=False))
    rows = {name: row for name, row in beside["rows"].items() if not name.startswith("ours/")}
    env = beside["environment"]
    return [
        _paragraph(
            f"Beside {num} processes that computed all the time, {_either(rows)}, on "
            f"{env['hardware']} ([raw](../bench/results/public-scripts-beside-{num}.txt)): "
            f"{counts}. Of the answers, {commas(_advice(rows, listed))}."
        )
    ]


def _budgets(rows: dict[str, Any]) -> str:
    """How many were given how much, the default first."""
    counts = Counter(row["budget"] for row in rows.values())
    default = counts.pop(DEFAULT_BUDGET, 0)
    if default and not counts:
        return f"all with the default budget of {DEFAULT_BUDGET}"
    parts = [f"{default} with the default budget of {DEFAULT_BUDGET}"] if default else []
    parts += [f"{counts[each]} with `--budget {each}`" for each in sorted(counts, key=_seconds)]
    return " and ".join(parts)


def _either(rows: dict[str, Any]) -> str:
    """The budgets where a script was given the one or the other."""
    budgets = sorted({row["budget"] for row in rows.values()}, key=_seconds)
    return "with " + " or ".join(f"`--budget {budget}`" for budget in budgets)


def _seconds(budget: str) -> float:
    return float(budget.removesuffix("s"))


def _between(dates: list[str]) -> str:
    return f"On {dates[0]}" if len(dates) == 1 else f"Between {dates[0]} and {dates[-1]}"


def _paragraph(text: str) -> str:
    return textwrap.fill(text, _WIDTH, break_long_words=False, break_on_hyphens=False)


def _real_table(rows: dict[str, Any], listed: dict[str, Any]) -> list[str]:
    lines = [
        "| script | at | answer | own | advised | the own size is written at |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        script = listed[name]
        verdict = _VERDICTS[judged(script, row).verdict]
        own, advised = _cell(row.get("own")), _cell(row.get("recommended"))
        cells = (
            f"`{_path_of(script)}`",
            script["commit"][:10] if "repo" in script else "a package",
            verdict,
            own,
            advised,
            _code(written(row.get("source"))),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _path_of(script: dict[str, Any]) -> str:
    """The script from its owner on, or what starts that of a package."""
    words = script["words"].split()
    if "repo" not in script:
        return " ".join(words[:3])
    return "/".join(filter(None, (script["repo"], script.get("folder"), words[0])))


def _our_table(rows: dict[str, Any], listed: dict[str, Any]) -> list[str]:
    lines = [
        "| in the style of | script | answer | on | the own size is written at |",
        "|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        script = listed[name]
        place = _code(written(row.get("source")))
        verdict = _VERDICTS[judged(script, row).verdict]
        script_name = script["words"].split()[0]
        cells = (script["style"], f"`{script_name}`", verdict, row["date"][:10], place)
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _code(text: str) -> str:
    return text if text == "-" else f"`{text}`"


def _remarks(rows: dict[str, Any], listed: dict[str, Any]) -> list[str]:
    """A line for each script that has no right answer, and for each without a size to choose."""
    lines = []
    for name, row in rows.items():
        verdict, checks = judged(listed[name], row)
        truth = listed[name].get("truth", {})
        wrong = [f"{what}: {said}" for what, said in checks.items() if said != "right"]
        if verdict == "told":
            lines.append(f"- {name}: {truth['told']}.")
        elif wrong or verdict != "answered":
            said = textwrap.shorten("; ".join(wrong) or _last_word(row), 200, placeholder=" …")
            said = said.replace("`", "'")
            lines.append(f"- {name}, {_VERDICTS[verdict]}: `{said}`")
    return ["## What is to be said of some", "\n".join(lines)] if lines else []


def _sweeps(rows: dict[str, Any]) -> list[str]:
    found = {name: sweep for name, row in rows.items() if (sweep := swept(row)) is not None}
    if not found:
        return []
    lines = [
        "| script | own | advised | best of the sweep | throughput of the advised, of the best |",
        "|---|---|---|---|---|",
    ]
    for name, sweep in found.items():
        own, advised = rows[name]["own"], rows[name]["recommended"]
        lines.append(f"| {name} | {own} | {advised} | {sweep.best} | {sweep.share:.0%} |")
    passes = min(sweep.num_passes for sweep in found.values())
    return [
        "## Against a sweep",
        _paragraph(
            "The cheapest were also run without batchadvisor, at one, two, four and eight times "
            "the own size and at the advised one, each in fresh processes that take turns, "
            f"{'twice' if passes > 1 else 'once or twice'} each. The answer asks for the smallest "
            "size within 5 % of the best, and keeps the own one where the gain is not certain."
        ),
        "\n".join(lines),
    ]


def _stand_ins(rows: dict[str, Any], listed: dict[str, Any]) -> str:
    names = [
        f"{package} for {name}" for name in rows for package in listed[name].get("stand_ins", [])
    ]
    return commas(names) or "none"
