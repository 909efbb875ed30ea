"""Names of GPU types that jobs and folders take."""

from __future__ import annotations

import re
from collections.abc import Sequence

TYPE_LETTERS = 24
"""Kubernetes: a job's name is ours, a dash and a type's. A pod's name has 63 letters at most, and
what the trainer adds to it takes fifteen (`-node-0-0-xxxxx`)."""


def name_from(text: str) -> str:
    """Lower-case letters, digits and dashes.

    >>> name_from("Tesla T4")
    'tesla-t4'
    """
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return name or "probe"


def slugs(types: Sequence[str]) -> list[str]:
    """A name for each type; no two are the same."""
    names: list[str] = []
    for text in types:
        name, number = _cut(name_from(text), ""), 1
        while name in names:
            number += 1
            name = _cut(name_from(text), f"-{number}")
        names.append(name)
    return names


def _cut(name: str, ending: str) -> str:
    return name[: TYPE_LETTERS - len(ending)].strip("-") + ending
