"""Which record a name of `--count` or `--price` means, and what a type is called in a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from ..errors import UsageError
from ..records import RunRecord

MAKERS = ("NVIDIA ", "Tesla ", "GeForce ", "AMD ", "Quadro ")
Number = TypeVar("Number", int, float)


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A record that a plan may use.

    Attributes:
        label: the name of its folder, or of its device in a run on several.
        folder: as typed.
    """

    label: str
    folder: str
    record: RunRecord

    @property
    def device(self) -> str:
        """As the driver names it."""
        return self.record.device.name if self.record.device is not None else ""


def short_name(device: str) -> str:
    """A GPU's name without its maker's.

    >>> short_name("NVIDIA A100-SXM4-80GB"), short_name("Tesla T4")
    ('A100-SXM4-80GB', 'T4')
    """
    for maker in MAKERS:
        device = device.removeprefix(maker)
    return device


def matched(
    option: str,
    given: Sequence[tuple[str, Number]],
    candidates: Sequence[Candidate],
    broken: Mapping[str, str],
) -> dict[int, Number]:
    """The numbers by the position of the record that each name means.

    Raises:
        UsageError: a name means no record or several, or two names mean one.
    """
    numbers: dict[int, Number] = {}
    for name, number in given:
        places = _places(name, candidates)
        if not places:
            raise UsageError(f"{option} {name}: {_why_none(name, candidates, broken)}", KNOWN)
        if len(places) > 1:
            several = ", ".join(_described(candidates[place]) for place in places)
            raise UsageError(
                f"{option} {name} means {len(places)} records: {several}.",
                "Write the name of the folder, or more of the device's name.",
            )
        if places[0] in numbers:
            raise UsageError(
                f"{option} {name}: {_described(candidates[places[0]])} has its number already.",
                "Give each type once.",
            )
        numbers[places[0]] = number
    return numbers


KNOWN = "A name is that of a record's folder, or a part of its device's name."


def named(candidates: Sequence[Candidate], typed: Mapping[int, str]) -> list[str]:
    """A name for each, none twice: as typed, else the GPU's, else the folder's."""
    devices = Counter(candidate.device for candidate in candidates)
    names: list[str] = []
    for place, candidate in enumerate(candidates):
        record = candidate.record
        gpu = record.device is not None and record.device.kind == "cuda"
        name = typed.get(place) or (
            short_name(candidate.device) if gpu and devices[candidate.device] == 1 else ""
        )
        name = name or candidate.label or candidate.folder
        if name in names:
            name = f"{name} ({candidate.folder})"
        names.append(name)
    return names


def _places(name: str, candidates: Sequence[Candidate]) -> list[int]:
    """Exact names before parts of names."""
    wanted = name.strip().lower()
    exact = [
        place
        for place, candidate in enumerate(candidates)
        if wanted
        in (
            candidate.label.lower(),
            candidate.folder.rstrip("/").lower(),
            candidate.device.lower(),
            short_name(candidate.device).lower(),
        )
    ]
    if exact or not wanted:
        return exact
    return [
        place
        for place, candidate in enumerate(candidates)
        if _holds(candidate.device.lower(), wanted)
    ]


def _holds(device: str, wanted: str) -> bool:
    """Whether the device's name has these words: `L4` is no part of `L40S`."""
    at = device.find(wanted)
    while at >= 0:
        before, after = device[at - 1 : at], device[at + len(wanted) : at + len(wanted) + 1]
        if not before.isalnum() and not after.isalnum():
            return True
        at = device.find(wanted, at + 1)
    return False


def _why_none(name: str, candidates: Sequence[Candidate], broken: Mapping[str, str]) -> str:
    for folder, reason in broken.items():
        if folder.rstrip("/").rsplit("/", maxsplit=1)[-1].lower() == name.lower():
            return f"its record cannot be read ({reason})."
    known = ", ".join(_described(candidate) for candidate in candidates)
    return f"no record is of that type; there are {known}."


def _described(candidate: Candidate) -> str:
    return f"{candidate.device or candidate.label} ({candidate.folder})"
