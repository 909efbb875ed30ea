"""Judges what bench/public_scripts.py recorded; makes its table and docs/works-with.md of it."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from common import HERE, header, table

PAGE = HERE.parent / "docs" / "works-with.md"
_TYPED = re.compile(r"batchadvisor run (.*?\{batch_size\}\S*)")
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


class Judged(NamedTuple):
    """One row beside what its source says.

    Attributes:
        verdict: a key of `_VERDICTS`.
        checks: for each thing that was compared "right", "not named", or what is wrong.
    """

    verdict: str
    checks: dict[str, str]


def judged(script: dict[str, Any], row: dict[str, Any]) -> Judged:
    """What a row is worth. Scripts without a `truth` are only asked whether there is an answer."""
    truth = script.get("truth", {})
    if row["outcome"] in ("skipped", "slow"):
        return Judged(row["outcome"], {})
    if "told" in truth:
        said = bool(re.search(truth["says"], _said(row)))
        wrong = row["outcome"] == "answered" and not said
        return Judged("told" if said else "wrong" if wrong else "failed", {})
    if row["outcome"] == "refused":
        return Judged("flag" if _TYPED.search(row["error"]) else "failed", {})
    checks = _checks(truth, row) if truth else {}
    if any(value not in ("right", "not named") for value in checks.values()):
        return Judged("wrong", checks)
    later = row["headline"].startswith("No answer yet")
    return Judged("later" if later else "answered", checks)


def _checks(truth: dict[str, Any], row: dict[str, Any]) -> dict[str, str]:
    own, advised = row["own"], row["recommended"]
    by_loader = row["door"] == "loader"
    others = sorted({asked for asked, arrived in row["arrived"] if arrived != asked})
    checks = {
        "door": _right(by_loader == (truth["door"] == "loader"), f"by the {row['door']}"),
        "own size": _right(own == truth["own"], f"{own}, not {truth['own']}"),
        "size that arrived": _right(not others, f"another one for {_listed(others)}"),
        "line to change": _line_named(truth["change"], row["source"]),
    }
    if by_loader and "loader" in truth:
        named = Path(row["loader"] or "").name in truth["loader"]
        checks["loader"] = _right(named, f"{row['loader']}, not {truth['loader'][0]}")
    if "says" in truth and advised not in (None, own):
        said = bool(re.search(truth["says"], _said(row)))
        checks["what else to change"] = _right(said, "not said")
    if "most" in truth:
        checks["advised"] = _right((advised or 0) <= truth["most"], f"{advised} cannot run")
    return checks


def _right(right: bool, wrong: str) -> str:
    return "right" if right else wrong


def _line_named(places: list[str], source: dict[str, Any] | None) -> str:
    if not source:
        return "not named"
    named = [source["place"], *(other["place"] for other in source.get("others", ()))]
    lines = {_line(place) for place in named}
    return _right(bool(lines & set(places)), f"{_written(source)}, not {places[0]}")


def _line(place: dict[str, Any] | None) -> str:
    """A line by the name of its file; no place is what a framework takes from the command line."""
    return "typed" if place is None else f"{Path(place['file']).name}:{place['line']}"


def _said(row: dict[str, Any]) -> str:
    parts = [row.get(name) or "" for name in ("error", "headline", "reason", "change")]
    return "\n".join([*parts, *row.get("findings", [])])


def _written(source: dict[str, Any] | None) -> str:
    if not source:
        return "-"
    place = _line(source["place"])
    return f"{'command line' if place == 'typed' else place}  {source['before']}"


def _listed(values: Any) -> str:
    return ", ".join(map(str, values))


# the sweep -----------------------------------------------------------------------------------


class Swept(NamedTuple):
    """The sizes that were timed without batchadvisor.

    Attributes:
        share: of the best throughput, at the advised size.
    """

    best: int
    share: float
    num_sizes: int
    num_passes: int


def swept(row: dict[str, Any]) -> Swept | None:
    """What a sweep says of the advised size; `None` if it was not swept, or not at that size."""
    speeds = {
        int(size): sum(values) / len(values)
        for size, values in row.get("sweep", {}).get("samples_per_s", {}).items()
    }
    if row.get("recommended") not in speeds or len(speeds) < 2:
        return None
    best = max(speeds, key=lambda size: speeds[size])
    passes = min(map(len, row["sweep"]["samples_per_s"].values()))
    return Swept(best, speeds[row["recommended"]] / speeds[best], len(speeds), passes)


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
                _written(row.get("source")),
            )
        )
        wrong = [f"{what} {said}" for what, said in checks.items() if said != "right"]
        if wrong or verdict not in ("answered", "told"):
            said = "; ".join(wrong) or row.get("error") or row.get("headline", "")
            notes.append(f"{name}: {verdict}. {textwrap.shorten(said, 400)}")
    headings = ("script", "verdict", "own", "advised", "seconds", "sweep", "own size is written at")
    lines += [table(headings, cells), ""]
    for title, ours in (("real", False), ("ours", True)):
        lines.append(f"{title}: {_listed(_counts(data, listed, ours))}")
    return "\n".join([*lines, "", *notes])


def _cell(value: Any) -> str:
    return "-" if value is None else str(value)


def _counts(data: dict[str, Any], listed: dict[str, Any], ours: bool) -> list[str]:
    verdicts = Counter(
        judged(listed[name], row).verdict
        for name, row in data["rows"].items()
        if name.startswith("ours/") == ours
    )
    return [f"{verdicts[key]} {words}" for key, words in _VERDICTS.items() if verdicts[key]]


# the page ------------------------------------------------------------------------------------


def page(data: dict[str, Any], listed: dict[str, Any]) -> str:
    """docs/works-with.md."""
    rows = {name: row for name, row in data["rows"].items() if not name.startswith("ours/")}
    ours = {name: row for name, row in data["rows"].items() if name.startswith("ours/")}
    repos = {listed[name].get("repo") for name in rows} - {None}
    budgets = sorted({row["budget"] for row in rows.values()})
    dates = sorted({row["date"][:10] for row in rows.values()})
    env = data["environment"]
    loads = [row["load"] for row in rows.values()]
    parts = [
        "# Scripts that it works with",
        _paragraph(
            f"{len(rows)} real, unmodified scripts, out of {len(repos)} repositories at named "
            "commits and out of packages, were run as their authors' users type them, after "
            f"`batchadvisor run --budget {' or '.join(budgets)}` and with no other option: "
            f"{_listed(_counts(data, listed, ours=False))}."
        ),
        _paragraph(
            "Right means: compared with what a person read in the script's source and wrote into "
            "[a list](../bench/public_scripts.yaml) before. Compared are the loader that trains, "
            "the own size, the size that reached the training steps, and the line that sets it. "
            "[`bench/public_scripts.py`](../bench/public_scripts.py) runs them from a folder of "
            "clones; it has made this page too."
        ),
        "\n".join(_real_table(rows, listed)),
        *_remarks(rows, listed),
        *_sweeps(rows),
        "## How they were run",
        _paragraph(
            f"Between {dates[0]} and {dates[-1]}, on {env['hardware']}, under a load of "
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
                f"apart: {_listed(_counts(data, listed, ours=True))}. They are in `bench/public`."
            ),
            "\n".join(_our_table(ours, listed)),
        ]
    return "\n\n".join(parts) + "\n"


def _paragraph(text: str) -> str:
    return textwrap.fill(text, _WIDTH, break_long_words=False, break_on_hyphens=False)


def _real_table(rows: dict[str, Any], listed: dict[str, Any]) -> list[str]:
    lines = [
        "| script | of | at | answer | own | advised | the own size is written at |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        script = listed[name]
        command = textwrap.shorten(script["words"], 40, placeholder=" …")
        verdict = _VERDICTS[judged(script, row).verdict]
        own, advised = _cell(row.get("own")), _cell(row.get("recommended"))
        cells = (
            f"`{command}`",
            script.get("repo") or f"package {script['package']}",
            script.get("commit", "")[:10] or "-",
            verdict,
            own,
            advised,
            _code(_written(row.get("source"))),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _our_table(rows: dict[str, Any], listed: dict[str, Any]) -> list[str]:
    lines = [
        "| in the style of | script | answer | on | the own size is written at |",
        "|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        script = listed[name]
        place = _code(_written(row.get("source")))
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
            said = "; ".join(wrong) or row.get("error") or row.get("headline", "")
            said = textwrap.shorten(re.sub(r"[`|<>*_\[\]]", "", said), 200)
            lines.append(f"- {name}, {_VERDICTS[verdict]}: {said}")
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
    return _listed(names) or "none"
