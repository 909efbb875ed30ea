"""Two profiled windows side by side: what grew from one batch size, or one run, to another."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from ...records import Advice, Profile, SizeAxis
from ...units import format_seconds
from ..report import LongTable
from ..sizes import SizeRow
from ..words.wording import clean
from .hot import UNKNOWN, Cell, Part, Window, is_listed, name_cell, table_of, window_of

MAX_ROWS = 15
FIXED, PROPORTIONAL = 0.1, 0.9
"""Exponents of the batch size up to which a time does not grow with it, and from which it does so
in full; and above `2 - PROPORTIONAL` it grows faster."""
NO_INTERVAL = "Means of the profiled steps, without an interval: small changes may be noise."
SHORT_NAME = 20
"""Letters of a name that fits over a column."""

_Pair: TypeAlias = tuple[float, float]
"""Seconds and calls per step."""


class Side(NamedTuple):
    """One of the two.

    Attributes:
        name: what tells it from the other.
        batch_size: `None` where it is not known.
        micro_batches: that many batches make a step.
        axis: what the batch size counts.
    """

    name: str
    batch_size: int | None
    profile: Profile
    window: Window
    micro_batches: int = 1
    axis: SizeAxis = "samples"


class _Times(NamedTuple):
    """Seconds and calls per step by name.

    Attributes:
        whole_s: of all, those that are not listed too; `None` where it is not known.
        unlisted_s: the most that one which is not listed can have; 0 where all are listed.
    """

    listed: Mapping[str, _Pair]
    whole_s: float | None
    unlisted_s: float


def of_sizes(rows: Sequence[SizeRow], advice: Advice) -> tuple[LongTable, ...]:
    """Neighbouring sizes that were profiled; the pair that ends at the recommended one is first,
    and before it the script's own size and the recommended one, where these are two.
    """
    by_size = _sides(rows, advice)
    recommended = advice.recommended.batch_size if advice.recommended is not None else None
    native = advice.native.batch_size if advice.native is not None else None
    pairs = list(itertools.pairwise(by_size.values()))
    first = [pair for pair in pairs if pair[1].batch_size == recommended] or pairs[-1:]
    if native in by_size and recommended in by_size and native != recommended:
        own = (by_size[native], by_size[recommended])
        first = [own, *(pair for pair in first if pair != own)]
    ordered = [*first, *(pair for pair in pairs if pair not in first)]
    return tuple(table for pair in ordered for table in tables(*pair))


def of_runs(
    names: tuple[str, str],
    rows: tuple[Sequence[SizeRow], Sequence[SizeRow]],
    advices: tuple[Advice, Advice],
) -> tuple[LongTable, ...]:
    """Two runs: at one size of both, and at the sizes that each recommends where these differ."""
    first, second = map(_sides, rows, advices, names)
    wanted = [
        advice.recommended.batch_size if advice.recommended is not None else None
        for advice in advices
    ]
    common = sorted(first.keys() & second.keys())
    pairs = []
    if common:
        size = next((size for size in reversed(wanted) if size in common), common[-1])
        pairs.append((first[size], second[size]))
    if wanted[0] != wanted[1] and wanted[0] in first and wanted[1] in second:
        pairs.append((first[wanted[0]], second[wanted[1]]))
    return tuple(table for pair in pairs for table in tables(*pair))


def _size_name(size: int, advice: Advice) -> str:
    return f"batch size {size}" if advice.axis == "samples" else f"{advice.size_name} {size}"


def _sides(rows: Sequence[SizeRow], advice: Advice, run: str = "") -> dict[int, Side]:
    """The sizes that were profiled, ascending.

    Args:
        run: name of the run, where there are two.
    """
    of_run = f"{run}, " if run else ""
    return {
        row.batch_size: Side(
            f"{of_run}{_size_name(row.batch_size, advice)}",
            row.batch_size,
            row.profile,
            window_of(row),
            row.trial.micro_batches or 1,
            advice.axis,
        )
        for row in sorted(rows, key=lambda row: row.batch_size)
        if row.profile is not None and is_listed(row.profile) and row.profile.num_steps
    }


def tables(before: Side, after: Side) -> tuple[LongTable, ...]:
    """What changed: by operator, and by kernel where a GPU worked in both."""
    found = []
    if before.profile.operators and after.profile.operators:
        times = (_operators(before), _operators(after))
        found = [_table(before, after, "operator", *times, on_cpu=True)]
    if before.profile.kernels and after.profile.kernels:
        found = [
            _table(before, after, "operator", _device_times(before), _device_times(after)),
            _table(before, after, "kernel", _kernels(before), _kernels(after)),
        ]
    return tuple(table for table in found if table is not None)


def _kernels(side: Side) -> _Times:
    listed = {kernel.name: (kernel.total_s, kernel.num_calls) for kernel in side.profile.kernels}
    return _times(side, listed, side.profile.kernels_s, side.profile.num_kernels)


def _operators(side: Side) -> _Times:
    listed = {one.name: (one.self_s, one.num_calls) for one in side.profile.operators}
    return _times(side, listed, side.profile.operators_s, side.profile.num_operators)


def _device_times(side: Side) -> _Times | None:
    """The GPU's work by the operator that launched it; operators are listed by their own time."""
    listed = {
        one.name: (one.device_s, one.num_calls)
        for one in side.profile.operators
        if one.device_s is not None
    }
    if not listed:
        return None
    found = _times(side, listed, None, side.profile.num_operators)
    number = side.profile.num_operators
    complete = number is not None and number <= len(side.profile.operators)
    return found._replace(unlisted_s=0.0 if complete else math.inf)


def _times(
    side: Side,
    listed: Mapping[str, tuple[float, float]],
    whole_s: float | None,
    number: int | None,
) -> _Times:
    steps = side.window.divisor
    least = min((total for total, _ in listed.values()), default=0.0)
    complete = number is not None and number <= len(listed)
    return _Times(
        {name: (total / steps, calls / steps) for name, (total, calls) in listed.items()},
        None if whole_s is None else whole_s / steps,
        0.0 if complete else least / steps,
    )


def _table(
    before: Side,
    after: Side,
    what: str,
    first: _Times | None,
    second: _Times | None,
    *,
    on_cpu: bool = False,
) -> LongTable | None:
    """The names with the largest changes first; `None` where nothing is known of one side."""
    if first is None or second is None:
        return None
    ratio = _ratio_of_sizes(before, after)
    found = []
    for name in first.listed.keys() | second.listed.keys():
        old, new = first.listed.get(name), second.listed.get(name)
        if max(pair[0] for pair in (old, new) if pair is not None) > 0:
            found.append((name, old, new, _change(old, new, first, second)))
    if not found:
        return None
    found.sort(key=lambda item: (-_amount(item[3]), item[0]))
    shown = found[:MAX_ROWS]
    parts = [
        Part(what, "", True, [name_cell(name) for name, *_ in shown]),
        Part(_title(before, "before"), "per step", False,
             [_seconds(old, first) for _, old, *_ in shown]),
        Part(_title(after, "after"), "per step", False,
             [_seconds(new, second) for _, _, new, _ in shown]),
        Part("change", "", False, [change for *_, change in shown]),
        Part("ratio", "", False, [_times_word(old, new) for _, old, new, _ in shown]),
        Part("grows", "", True, [_grows(old, new, ratio) for _, old, new, _ in shown]),
        Part("calls", "per step", False, [_calls(old, new) for _, old, new, _ in shown]),
    ]  # fmt: skip
    where = "Self time on the CPU" if on_cpu else "GPU time"
    bounds = any(old is None or new is None for _, old, new, _ in shown)
    notes = _notes(
        (first, second), _of_the_batch(ratio, after.axis), len(found), what, bounds=bounds
    )
    return table_of(f"{where} by {what}: {before.name} → {after.name}", parts, notes)


def _amount(cell: Cell) -> float:
    return abs(cell.key) if isinstance(cell.key, float) else 0.0


def _title(side: Side, short: str) -> str:
    return clean(side.name) if len(side.name) < SHORT_NAME else short


def _notes(
    both: tuple[_Times, _Times], batch: str, number: int, what: str, *, bounds: bool
) -> list[str]:
    """What is to know of a table.

    Args:
        bounds: whether a name is listed of one side alone.
    """
    notes = []
    first, second = both
    if first.whole_s and second.whole_s:
        notes.append(
            f"All {what}s together: {format_seconds(first.whole_s)} → "
            f"{format_seconds(second.whole_s)} a step (x{second.whole_s / first.whole_s:.2f})"
            f"{batch}."
        )
    if number > MAX_ROWS:
        notes.append(f"The {MAX_ROWS} largest changes of {number}.")
    if bounds and any(math.isfinite(side.unlisted_s) and side.unlisted_s > 0 for side in both):
        notes.append(
            f"below, over: the {what} is not among those that the record lists of one side, where "
            "it took less than the shortest of them."
        )
    return [*notes, NO_INTERVAL]


def _of_the_batch(ratio: float | None, axis: SizeAxis) -> str:
    what = "samples" if axis == "samples" else f"budget of {axis}"
    return "" if ratio is None else f", with x{ratio:.4g} the {what}"


def _ratio_of_sizes(before: Side, after: Side) -> float | None:
    """How many times the samples of a step are more; `None` where as many, or not known."""
    if before.axis != after.axis or not before.batch_size or not after.batch_size:
        return None
    first = before.batch_size * before.micro_batches
    second = after.batch_size * after.micro_batches
    return None if first == second else second / first


def _change(old: _Pair | None, new: _Pair | None, first: _Times, second: _Times) -> Cell:
    """Seconds per step that were added; the least that it was where one side is not listed."""
    if old is not None and new is not None:
        return Cell(_signed(new[0] - old[0]), new[0] - old[0])
    had = new if old is None else old
    bound = (first if old is None else second).unlisted_s
    if had is None or not math.isfinite(bound) or had[0] <= bound:
        return Cell(UNKNOWN)
    least = had[0] - bound if old is None else bound - had[0]
    return Cell(_signed(least) if bound == 0 else f"over {_signed(least)}", least)


def _grows(old: _Pair | None, new: _Pair | None, ratio: float | None) -> Cell:
    """How a time follows the batch size; sorted by the exponent that says so."""
    if ratio is None or old is None or new is None or old[0] <= 0 or new[0] <= 0:
        return Cell(UNKNOWN)
    exponent = math.log(new[0] / old[0]) / math.log(ratio)
    words = "more than the batch"
    if exponent < -FIXED:
        words = "shrinks"
    elif exponent <= FIXED:
        words = "not at all"
    elif exponent < PROPORTIONAL:
        words = "less than the batch"
    elif exponent <= 2 - PROPORTIONAL:
        words = "with the batch"
    return Cell(words, exponent)


def _seconds(pair: _Pair | None, side: _Times) -> Cell:
    if pair is not None:
        return Cell(format_seconds(pair[0]), pair[0])
    if side.unlisted_s == 0:
        return Cell("none", 0.0)
    known = math.isfinite(side.unlisted_s)
    return Cell(f"below {format_seconds(side.unlisted_s)}" if known else UNKNOWN)


def _signed(seconds: float) -> str:
    return f"+{format_seconds(seconds)}" if seconds > 0 else format_seconds(seconds)


def _times_word(old: _Pair | None, new: _Pair | None) -> Cell:
    if old is None or new is None or old[0] <= 0:
        return Cell(UNKNOWN)
    ratio = new[0] / old[0]
    return Cell(f"x{ratio:.2f}" if not 0 < ratio < 0.1 else f"x{ratio:.2g}", ratio)


def _calls(old: _Pair | None, new: _Pair | None) -> Cell:
    texts = [UNKNOWN if pair is None else f"{pair[1]:.4g}" for pair in (old, new)]
    text = texts[0] if texts[0] == texts[1] else " → ".join(texts)
    return Cell(text, new[1] if new is not None else None)
