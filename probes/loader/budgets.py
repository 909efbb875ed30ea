"""Batch samplers that fill batches up to a budget of tokens, steered by that budget.

Three ways, the first that an experiment confirms: an attribute that holds the budget and is read at
each pass (of the sampler, of one that it wraps, of a part that it keeps), an argument with which
the sampler is made anew, and the rule itself: batches that were cut before, whose lengths show that
each was filled in order up to one budget.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import Any, NamedTuple

import msgspec

from ...records import SizeAxis
from .remade_samplers import BUDGET_NAME, arguments_of, remade
from .sample_lengths import SampleLengths

FACTOR = 2
"""Budgets are tried with so many times as much."""
GROWTH_RANGE = (1.5, 2.7)
"""Samples of a batch grow so much then, whole sequences being what fills it."""
LOOKED_AT = 64
"""Batches from which it is told whether they follow a budget."""
MAX_CUT = 4000
"""Batches that were cut before, of which a rule is looked for."""
FULL_BATCHES_SHARE = 0.95
"""Share of the batches that one more sequence would take over the budget, under a rule."""
MIN_BATCHES = 4
SETTINGS_DEPTH = 3
BY_RULE = "rule"


class Rule(NamedTuple):
    """How batches were filled.

    Attributes:
        padded: the budget bounds samples times the longest; else the sum of the lengths.
        order: samples were taken as they came, the shortest or the longest first.
        shuffled: the batches were shuffled afterwards.
    """

    padded: bool
    order: str
    shuffled: bool


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """How a budget gets into a batch sampler.

    Attributes:
        parameter: what the script calls it; empty where only the rule is known.
        own: the script's own budget; of a rule the least that gives its batches.
        at_most: the largest that gives the same batches, of a rule; else the same as `own`.
        how: by an attribute, by an argument, by the rule.
        rule: where that is how.
    """

    parameter: str
    own: int
    at_most: int
    how: str
    axis: SizeAxis = "tokens"
    rule: Rule | None = None

    def batches(self, native: Any, size: int, lengths: SampleLengths) -> Iterable[list[Any]]:
        """A batch sampler with this budget.

        Raises:
            ValueError: it cannot be made again.
        """
        if self.how == "attribute":
            for owner, name in settings(native):
                if name == self.parameter:
                    _set(owner, name, size)
            return _batches(native)
        if self.how == "argument":
            fresh = remade(native, size, self.parameter)
            if fresh is None:
                msg = "it cannot be made a second time"
                raise ValueError(msg)
            return _batches(fresh)
        assert self.rule is not None
        return Cut(native, self.rule, size, lengths)


def budget_of(native: Any, lengths: SampleLengths, *, is_list: bool = True) -> Budget | None:
    """How a batch sampler takes a budget; `None` where an experiment confirms no way.

    Draws passes of it; its settings are its own again afterwards.

    Args:
        is_list: each item is a batch of indices; else it is a batch of the script's own kind, of
            which no rule can be made.
    """
    return (
        _by_attribute(native)
        or _by_argument(native)
        or (_by_rule(native, lengths) if is_list else None)
    )


def axis_of(parameter: str) -> SizeAxis:
    """The unit that a budget counts, by its name."""
    if "frame" in parameter:
        return "frames"
    if "duration" in parameter or "second" in parameter:
        return "seconds"
    return "tokens"


def settings(native: Any) -> Iterator[tuple[Any, str]]:
    """Settings that may be budgets: of a sampler, of those that it wraps and of its own parts."""
    yield from _settings(native, SETTINGS_DEPTH, set())


def _settings(owner: Any, depth: int, met: set[int]) -> Iterator[tuple[Any, str]]:
    owner = getattr(owner, "_native", owner)
    if id(owner) in met or not hasattr(owner, "__dict__"):
        return
    met.add(id(owner))
    held = dict(vars(owner))
    for name, value in held.items():
        if BUDGET_NAME.search(name) and _number(value) is not None:
            yield owner, name
    if depth > 1:
        for value in held.values():
            is_part = type(value).__module__ != "builtins" and not hasattr(value, "__array__")
            if is_part and not isinstance(value, type) and not callable(value):
                yield from _settings(value, depth - 1, met)


def _number(value: Any) -> int | None:
    """A whole number above 1."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return int(value) if value > 1 and value == int(value) else None


def _set(owner: Any, name: str, size: int) -> None:
    # Of the kind that stood there: durations are fractions.
    setattr(owner, name, type(getattr(owner, name))(size))


def _by_attribute(native: Any) -> Budget | None:
    # Wrappers and parts may keep a budget of one name twice: all of them are set.
    own: dict[str, int] = {}
    held: dict[str, list[tuple[Any, Any]]] = {}
    for owner, name in settings(native):
        value = getattr(owner, name)
        own[name] = _number(value) or 0
        held.setdefault(name, []).append((owner, value))
    before = _mean_length(native)
    for name, size in own.items():
        try:
            for owner, _ in held[name]:
                _set(owner, name, size * FACTOR)
            if _grows(before, _mean_length(native)):
                return Budget(
                    parameter=name, own=size, at_most=size, how="attribute", axis=axis_of(name)
                )
        except (AttributeError, TypeError, ValueError):
            continue
        finally:
            for owner, value in held[name]:
                setattr(owner, name, value)
    return None


def _by_argument(native: Any) -> Budget | None:
    before = _mean_length(native)
    for name, value in arguments_of(native).items():
        size = _number(value)
        if size is None or not BUDGET_NAME.search(name):
            continue
        fresh = remade(native, size * FACTOR, name)
        if fresh is not None and _grows(before, _mean_length(fresh)):
            return Budget(
                parameter=name, own=size, at_most=size, how="argument", axis=axis_of(name)
            )
    return None


def _grows(before: float | None, after: float | None) -> bool:
    if before is None or after is None:
        return False
    return GROWTH_RANGE[0] <= after / before <= GROWTH_RANGE[1]


def _mean_length(native: Any) -> float | None:
    """Samples of a batch, without the last one of a pass; `None` of fewer than two."""
    try:
        sizes = [len(batch) for batch in islice(iter(native), LOOKED_AT + 1)]
    except Exception:  # noqa: BLE001  the script's own code, with a budget it never had
        return None
    sizes = sizes[:-1]
    return sum(sizes) / len(sizes) if sizes and sum(sizes) else None


def _batches(native: Any) -> Iterable[Any]:
    return native  # type: ignore[no-any-return]


# batches that were cut before ------------------------------------------------------------------


def _by_rule(native: Any, lengths: SampleLengths) -> Budget | None:
    try:
        cut = [list(batch) for batch in islice(iter(native), MAX_CUT)]
    except Exception:  # noqa: BLE001  the script's own code
        return None
    cut = [batch for batch in cut if batch]
    if len(cut) < MIN_BATCHES or len({len(batch) for batch in cut}) < 2:
        return None
    table: dict[Any, int] = {}
    for batch in cut:
        found = lengths.of(batch)
        if found is None:
            return None
        table.update(zip(batch, found, strict=True))
    if len(set(table.values())) < 2:
        return None
    for order in ("longest first", "shortest first", "as they come"):
        arranged = _arranged(cut, table, order)
        if order != "as they come" and not _is_sorted(arranged, table):
            continue
        for padded in (True, False):
            bounds = _bounds(arranged, table, padded=padded)
            if bounds is not None:
                rule = Rule(padded, order, shuffled=arranged != cut)
                return Budget(
                    parameter="", own=bounds[0], at_most=bounds[1], how=BY_RULE, rule=rule
                )
    return None


def _arranged(cut: Sequence[list[Any]], table: dict[Any, int], order: str) -> list[list[Any]]:
    """The batches as they were before they were shuffled, if samples were sorted first."""
    if order == "as they come":
        return list(cut)
    down = order == "longest first"
    inside = [sorted(batch, key=table.__getitem__, reverse=down) for batch in cut]
    return sorted(inside, key=lambda batch: (table[batch[0]], table[batch[-1]]), reverse=down)


def _is_sorted(arranged: Sequence[Sequence[Any]], table: dict[Any, int]) -> bool:
    """Whether the lengths of batches hardly overlap: their samples were sorted first."""
    ranges = [sorted((table[batch[0]], table[batch[-1]])) for batch in arranged]
    apart = [max(one[0], two[0]) >= min(one[1], two[1]) for one, two in pairwise(ranges)]
    return sum(apart) >= FULL_BATCHES_SHARE * len(apart)


def _bounds(
    cut: Sequence[Sequence[Any]], table: dict[Any, int], *, padded: bool
) -> tuple[int, int] | None:
    """The least and the largest budget under which these batches are filled in this order.

    A sequence longer than the budget has a batch of its own, which says nothing of it.
    """
    several = [_cost([table[index] for index in batch], padded) for batch in cut if len(batch) > 1]
    if len(several) < MIN_BATCHES:
        return None
    least = max(several)
    beyond = [
        _cost([*(table[index] for index in batch), table[after[0]]], padded)
        for batch, after in pairwise(cut)
    ]
    over = sorted(cost for cost in beyond if cost > least)
    if len(over) < FULL_BATCHES_SHARE * len(beyond):
        return None
    return least, over[0] - 1


def _cost(lengths: Sequence[int], padded: bool) -> int:
    return len(lengths) * max(lengths) if padded else sum(lengths)


class Cut:
    """Batches cut by a rule from the samples of the script's own batches."""

    def __init__(self, native: Any, rule: Rule, size: int, lengths: SampleLengths) -> None:
        self._native, self._rule, self._size, self._lengths = native, rule, size, lengths
        self._num_passes = 0

    def __iter__(self) -> Iterator[list[Any]]:
        indices = [index for batch in self._native for index in batch]
        if self._lengths.of(indices) is None:  # of so many not all are looked at
            indices = [index for index in indices if index in self._lengths.by_index]
        if not indices:
            raise ValueError(self._lengths.why)
        table = {index: self._lengths.by_index[index] for index in indices}
        if self._rule.order != "as they come":
            down = self._rule.order == "longest first"
            indices = sorted(indices, key=table.__getitem__, reverse=down)
        batches = list(cut_by_budget(indices, table, self._size, padded=self._rule.padded))
        if self._rule.shuffled:
            random.Random(self._num_passes).shuffle(batches)
        self._num_passes += 1
        return iter(batches)


def cut_by_budget(
    indices: Sequence[Any], table: dict[Any, int], budget: int, *, padded: bool
) -> Iterator[list[Any]]:
    """Fills batches in order; a sequence longer than the budget has one of its own.

    >>> list(cut_by_budget("abcd", {"a": 3, "b": 2, "c": 9, "d": 1}, 6, padded=True))
    [['a', 'b'], ['c'], ['d']]
    """
    batch: list[Any] = []
    total = longest = 0
    for index in indices:
        length = table[index]
        total, longest = total + length, max(longest, length)
        if batch and ((len(batch) + 1) * longest if padded else total) > budget:
            yield batch
            batch, total, longest = [], length, length
        batch.append(index)
    if batch:
        yield batch
