"""The cases that an epoch's end can be: each by its id, what happens, and what to do."""

from __future__ import annotations

from ....records import Case
from .framework_cases import FRAMEWORK_CASES
from .loader_cases import LOADER_CASES
from .rank_cases import RANK_CASES

CASES: tuple[Case, ...] = tuple(
    sorted((*LOADER_CASES, *RANK_CASES, *FRAMEWORK_CASES), key=lambda case: case.number)
)
BY_ID = {case.id: case for case in CASES}


def case_of(name: str) -> Case | None:
    """The case of an id, or of a number from 1."""
    if name.isascii() and name.isdigit() and 1 <= int(name) <= len(CASES):
        return CASES[int(name) - 1]
    return BY_ID.get(name)
