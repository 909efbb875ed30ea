"""The table of the cases that an epoch's end can be."""

from __future__ import annotations

from ...records import Pipeline
from .case import TailCase
from .framework_cases import FRAMEWORK_CASES
from .loader_cases import LOADER_CASES
from .rank_cases import RANK_CASES

_EVERY = (*LOADER_CASES, *RANK_CASES, *FRAMEWORK_CASES)
"""All cases, in the order in which findings of equal severity are told."""
CASES: tuple[TailCase, ...] = tuple(sorted(_EVERY, key=lambda case: case.number))
"""All cases, in the order of their pages."""
BY_ID = {case.id: case for case in CASES}


def case_of(name: str) -> TailCase | None:
    """The case of an id, or of a number from 1."""
    if name.isascii() and name.isdigit() and 1 <= int(name) <= len(CASES):
        return CASES[int(name) - 1]
    return BY_ID.get(name)


def cases_for(pipeline: Pipeline) -> tuple[TailCase, ...]:
    """The cases that can fire for this pipeline at any size."""
    return tuple(case for case in _EVERY if case.refuses is None and case.applies(pipeline))
