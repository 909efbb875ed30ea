"""Reads the conditions and the runs of both sides, judges, and writes what was asked for."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import get_args

import msgspec

from ...errors import UsageError
from ...session.pages import file_text, terminal_text
from ...session.recording.store import DEVICES, RECORD, read_record, write_output
from ...session.report import check_output
from .evidence import Run
from .judge import judge
from .page import build_page, junit_xml
from .records import GATE_VERSION, Condition, Gate, Measure

ANSWER_SUFFIXES = {".md": "Markdown", ".json": "JSON"}
JUNIT_SUFFIXES = {".xml": "JUnit XML"}
EXAMPLE_CONDITION = "step_time>+5%"
_CONDITION = re.compile(r"(?P<measure>[\w.-]*)(?P<sign><=|>=|<|>|=+)?(?P<limit>.*)")
_LIMIT = re.compile(r"[+-]\d+(?:\.\d+)?%")


def gate_of(
    before: Path, after: Path, conditions: Sequence[Condition], size: int | None = None
) -> Gate:
    """The answer for two places of runs.

    Raises:
        UsageError: there is no run, or one that cannot be read.
    """
    return judge(runs_at(before), runs_at(after), conditions, size)


def runs_at(place: Path) -> list[Run]:
    """The run of a folder or a record.json, or all runs in the folders of a folder.

    Raises:
        UsageError: there is none, or one that this version does not read.
    """
    if place.is_dir() and (place / DEVICES).is_file():
        msg = f"{place} is a run on several devices."
        raise UsageError(msg, "Name the folder of one device in it.")
    if not place.is_dir() or (place / RECORD).is_file():
        return [Run(read_record(place), place)]
    try:
        inside = sorted(each for each in place.iterdir() if (each / RECORD).is_file())
    except OSError as error:
        msg = f"cannot read {place}: {error.strerror or error}."
        raise UsageError(msg, "Make it readable, or name another folder.") from error
    if not inside:
        msg = f"{place} holds no run: neither {RECORD} nor folders with one."
        raise UsageError(msg, "Name a run's folder, its record.json, or a folder of runs.")
    return [Run(read_record(each), each) for each in inside]


def check_files(outputs: Sequence[Path], junit_file: Path | None, *, force: bool) -> None:
    """Refuses files that cannot be written or are not ours, before any work.

    Raises:
        UsageError: unknown suffix, no such folder, a folder, or somebody else's file.
    """
    for output in outputs:
        check_output(output, force=force, suffixes=ANSWER_SUFFIXES)
    if junit_file is not None:
        check_output(junit_file, force=force, suffixes=JUNIT_SUFFIXES)


def write(gate: Gate, path: Path, names: tuple[str, str]) -> str:
    """Writes the answer; the suffix chooses the format, which is returned.

    Raises:
        RunError: it cannot be written.
    """
    suffix = path.suffix.lower()
    if suffix in JUNIT_SUFFIXES:
        text = junit_xml(gate)
    elif suffix == ".md":
        text = file_text(build_page(gate, names), markdown=True)
    else:
        text = gate_json(gate)
    write_output(path, text)
    return {**ANSWER_SUFFIXES, **JUNIT_SUFFIXES}[suffix]


def gate_json(gate: Gate) -> str:
    """The answer for machines; ends with a line break."""
    return msgspec.json.format(msgspec.json.encode(gate), indent=1).decode() + "\n"


def gate_text(gate: Gate, places: tuple[Path, Path], *, width: int, color: bool) -> str:
    """The answer on a terminal."""
    return terminal_text(
        build_page(gate, names_of(places)),
        next_command=next_command(places),
        width=width,
        color=color,
    )


def names_of(places: tuple[Path, Path]) -> tuple[str, str]:
    """What the two sides are called."""
    return str(places[0]), str(places[1])


def next_command(places: tuple[Path, Path]) -> str:
    """The command that shows the first runs of both sides beside each other."""
    first = [str(runs_at(place)[0].path) for place in places]
    return f"batchadvisor report {shlex.join(first)} -o comparison.html"


def schema_text() -> str:
    """JSON Schema of the answer; `features/gate/schema.json` is this, committed."""
    from ...reports.data.report import schema_of

    return schema_of("gate", GATE_VERSION, Gate)


def condition_of(text: str) -> Condition:
    """The condition that a text states.

    Raises:
        UsageError: an unknown measure, no `<` or `>`, or a limit without its sign or its unit.

    >>> condition_of("throughput < -5%").limit
    -0.05
    """
    words = "".join(text.split())
    parts = _CONDITION.fullmatch(words)
    assert parts is not None  # every part may be empty
    measure, sign, limit = parts["measure"], parts["sign"], parts["limit"]
    if measure not in get_args(Measure):
        what = f"{measure!r} is no measure" if measure else "it names no measure"
        raise _wrong(text, what, f"Use one of {', '.join(get_args(Measure))}.")
    if sign not in ("<", ">"):
        raise _wrong(text, "between measure and limit stands < or >", f"Write {EXAMPLE_CONDITION}.")
    if not _LIMIT.fullmatch(limit):
        raise _wrong(text, _what_lacks(limit), f"Write {measure}{sign}{_mended(limit)}.")
    share = float(limit.rstrip("%")) / 100
    if share <= -1:
        raise _wrong(text, "nothing shrinks by all of it or more", f"Write {EXAMPLE_CONDITION}.")
    return Condition(text=words, measure=_measure(measure), above=sign == ">", limit=share)


def _measure(name: str) -> Measure:
    return next(each for each in get_args(Measure) if each == name)


def _wrong(text: str, why: str, remedy: str) -> UsageError:
    return UsageError(f"--fail-if {text!r}: {why}.", remedy)


def _what_lacks(limit: str) -> str:
    number = _number(limit.strip("%"))
    if number is None:
        return f"{limit!r} is no change in percent" if limit else "it lacks its limit"
    if not limit.endswith("%"):
        return f"the limit {limit} lacks its unit, %"
    return f"the limit {limit} lacks its sign: + is more, - is less"


def _mended(limit: str) -> str:
    number = _number(limit.strip("%"))
    return "+5%" if number is None else f"{number:+g}%"


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if isfinite(number) else None
