"""Judges the rows that bench/public_scripts.py recorded, by what its list says of each script."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

_TYPED = re.compile(r"batchadvisor run (.*?\{batch_size\}.*?)(?: {2,}\(|\n|$)")


class Judged(NamedTuple):
    """One row beside what its source says.

    Attributes:
        verdict: a key of `VERDICTS` of the page.
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
        by_command = row.get("second", {}).get("outcome") == "answered"
        return Judged("flag" if by_command else "failed", {})
    checks = _checks(truth, row) if truth else {}
    if any(value not in ("right", "not named") for value in checks.values()):
        return Judged("wrong", checks)
    later = row["headline"].startswith("No answer yet")
    return Judged("later" if later else "answered", checks)


def proposed(script: dict[str, Any], row: dict[str, Any]) -> str:
    """What an error says to type after `batchadvisor run`, for a script that has a size."""
    found = _TYPED.search(row.get("error", ""))
    return found[1] if found and "told" not in script.get("truth", {}) else ""


def _checks(truth: dict[str, Any], row: dict[str, Any]) -> dict[str, str]:
    own, advised = row["own"], row["recommended"]
    by_loader = row["door"] == "loader"
    others = {asked for asked, arrived in row["arrived"] if arrived != asked}
    others |= {advised} & set(row.get("typed", {}).get("missed", ()))
    checks = {
        "door": _right(by_loader == (truth["door"] == "loader"), f"by the {row['door']}"),
        "own size": _right(own == truth["own"], f"{own}, not {truth['own']}"),
        "size that arrived": _right(not others, f"another one for {commas(sorted(others))}"),
        "line to change": _line_named(truth["change"], row),
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


def _line_named(places: list[str], row: dict[str, Any]) -> str:
    source = row["source"]
    if not source:
        return "not named"
    named = [source["place"], *(other["place"] for other in source.get("others", ()))]
    lines = {_line(place) for place in named}
    if source["before"].startswith("-") and source["before"] in row["command"]:
        lines = {"typed"}  # the place is where the script reads its options
    return _right(bool(lines & set(places)), f"{written(source)}, not {places[0]}")


def _line(place: dict[str, Any] | None) -> str:
    """A line by the name of its file; no place is what a framework takes from the command line."""
    return "typed" if place is None else f"{Path(place['file']).name}:{place['line']}"


def _said(row: dict[str, Any]) -> str:
    parts = [row.get(name) or "" for name in ("error", "headline", "reason", "change")]
    return "\n".join([*parts, *row.get("findings", [])])


def written(source: dict[str, Any] | None) -> str:
    if not source:
        return "-"
    place = _line(source["place"])
    return f"{'command line' if place == 'typed' else place}  {source['before']}"


def commas(values: Any) -> str:
    return ", ".join(map(str, values))


def advice(row: dict[str, Any]) -> str:
    """What an answer comes to, of those that keep the own size by how much was looked at."""
    if row["recommended"] != row["own"]:
        return "advise another size"
    if row["standing"] == "too noisy":
        return "keep the own size as it is too noisy to tell"
    timed = row.get("timed", [asked for asked, _ in row["arrived"]])
    if max(timed, default=0) > row["own"]:
        return "keep the own size after a larger one was timed"
    return "keep the own size with no larger one timed"


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
        for size, values in row.get("typed", {}).get("samples_per_s", {}).items()
    }
    if row.get("recommended") not in speeds or len(speeds) < 2:
        return None
    best = max(speeds, key=lambda size: speeds[size])
    passes = min(map(len, row["typed"]["samples_per_s"].values()))
    return Swept(best, speeds[row["recommended"]] / speeds[best], len(speeds), passes)
