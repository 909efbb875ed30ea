"""Shows what `batchadvisor doctor` found."""

from __future__ import annotations

import textwrap

from ..records import Check, Checkup
from .wording import clean

_WORDS = {"ok": "ok", "absent": "-", "broken": "!!"}


def render(checkup: Checkup, *, width: int = 80, encoding: str = "utf-8") -> str:
    """One entry for each thing, what to do below it, and whether `run` would work.

    Args:
        width: columns.
        encoding: of the output; characters that it lacks are replaced.
    """
    names = max((len(one.name) for one in checkup.checks), default=0)
    lines: list[str] = []
    for one in checkup.checks:
        lines += _entry(one, names, max(width, names + 30), encoding)
    bad = [one.name for one in checkup.checks if one.needed and one.state != "ok"]
    end = "batchadvisor run works here."
    if bad:
        end = f"batchadvisor run does not work here: {', '.join(bad)}."
    return "\n".join([*lines, "", "ok: there and works; -: not there; !!: look at this.", end])


def _entry(one: Check, names: int, width: int, encoding: str) -> list[str]:
    head = f"{_WORDS[one.state]:<3} {one.name:<{names}}  "
    indent = " " * len(head)
    detail, remedy = clean(one.detail, encoding), clean(one.remedy, encoding)
    lines = textwrap.wrap(
        detail, width, initial_indent=head, subsequent_indent=indent, break_on_hyphens=False
    )
    if remedy:
        lines += textwrap.wrap(
            remedy, width, initial_indent=f"{indent}-> ", subsequent_indent=f"{indent}   "
        )
    return lines or [head.rstrip()]
