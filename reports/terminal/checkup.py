"""Shows what `batchadvisor doctor` found."""

from __future__ import annotations

import textwrap

from ...records import Check, Checkup
from ..words.wording import clean

_WORDS = {"ok": "ok", "absent": "-", "broken": "!!"}


def render(checkup: Checkup, *, width: int = 80, encoding: str = "utf-8") -> str:
    """One entry for each thing, what to do below it, and whether `run` would work.

    Args:
        width: columns.
        encoding: of the output; characters that it lacks are replaced.
    """
    names = max((len(check.name) for check in checkup.checks), default=0)
    lines: list[str] = []
    for check in checkup.checks:
        lines += _entry(check, names, max(width, names + 30), encoding)
    bad = [check.name for check in checkup.checks if check.needed and check.state != "ok"]
    end = "batchadvisor run works here."
    if bad:
        end = f"batchadvisor run does not work here: {', '.join(bad)}."
    return "\n".join([*lines, "", "ok: there and works; -: not there; !!: look at this.", end])


def _entry(check: Check, names: int, width: int, encoding: str) -> list[str]:
    head = f"{_WORDS[check.state]:<3} {check.name:<{names}}  "
    indent = " " * len(head)
    detail, remedy = clean(check.detail, encoding), clean(check.remedy, encoding)
    lines = textwrap.wrap(
        detail, width, initial_indent=head, subsequent_indent=indent, break_on_hyphens=False
    )
    if remedy:
        lines += textwrap.wrap(
            remedy, width, initial_indent=f"{indent}-> ", subsequent_indent=f"{indent}   "
        )
    return lines or [head.rstrip()]
