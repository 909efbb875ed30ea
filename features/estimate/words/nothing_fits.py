"""GPUs on which not even the smallest batch fits: what fills them, and what would make it fit."""

from __future__ import annotations

from collections.abc import Sequence

from ....units import format_bytes
from ..records import Estimate, TooSmall

MOST_SHARE = 0.55
"""Share of the memory held from which on one part is called most of it."""
MOST_NAMES = 6
MOST_CHANGES = 5


def nothing_fits_texts(answer: Estimate) -> list[str]:
    """Sentences to stand before the tables; none if a batch fits on every GPU."""
    texts = []
    for group in answer.too_small:
        texts.append(f"{_what(group)} {_why(group)}")
        texts.append(_remedy(group, sharded=bool(answer.sharded)))
    return texts


def _what(group: TooSmall) -> str:
    where = _names(group.gpus)
    if group.for_sure:
        return f"Not even one sample should fit on {where}."
    return (
        f"A batch of {group.batch_size}, the smallest that was looked at, should not fit on "
        f"{where}; one sample may."
    )


def _why(group: TooSmall) -> str:
    (first, size), *others = group.parts.items()
    rest = ", ".join(f"{role} {format_bytes(part)}" for role, part in others)
    of = (
        f"Whatever the batch, the script as written holds {format_bytes(group.held_bytes)}"
        if group.for_sure
        else f"As written its tensors take {format_bytes(group.held_bytes)}"
    )
    most = f"most of it {first}" if size > MOST_SHARE * group.held_bytes else f"{first} first"
    text = f"{of}, {most}: {format_bytes(size)} ({_share(size, group.held_bytes)})"
    return f"{text}; {rest}." if rest else f"{text}."


def _remedy(group: TooSmall, *, sharded: bool) -> str:
    lines = [
        f"{fix.change}, batch {fix.batch_size}, on {_names(fix.gpus)}"
        for fix in group.fixes[:MOST_CHANGES]
    ]
    if lines:
        return f"What would make it fit, by its tensors: {'; '.join(lines)}."
    ranks = "over more ranks" if sharded else "over ranks"
    return (
        "None of the changes that were looked at would make it fit. Take a GPU with more memory, "
        f"or share the model {ranks} (--shard RANKS)."
    )


def _share(part: int, whole: int) -> str:
    return f"{round(100 * part / whole)}%"


def _names(gpus: Sequence[str]) -> str:
    shown, rest = gpus[:MOST_NAMES], len(gpus) - MOST_NAMES
    if rest > 0:
        return f"{', '.join(shown)} and {rest} more"
    *some, last = shown
    return f"{', '.join(some)} and {last}" if some else last
