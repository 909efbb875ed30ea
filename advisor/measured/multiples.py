"""Sizes that a script takes: multiples of a number, as the user says or as crashes show.

A crash whose neighbours run says nothing about larger sizes. It is a constraint: Mixup wants even
batches, a layer that compares groups of 4 wants at most 4 samples or a multiple of 4.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from math import isqrt, lcm

import msgspec

from ...records import Trial
from .kernel_limits import kernel_limit_of

REFUSALS = ("exception", "crashed")
"""Outcomes by which a script turns a size down; memory, time and an early end are no such."""
LARGEST_STEP = 1024
"""Larger steps are not looked for."""
LARGEST_WHOLE = 1 << 24
"""Larger whole numbers that sizes divide are not looked for."""


class Multiples(msgspec.Struct, frozen=True, kw_only=True):
    """Which sizes are taken.

    Attributes:
        step: sizes are its multiples.
        any_up_to: sizes up to the step are taken too, whatever they are.
        divide: sizes divide this number instead, or are its multiples; 0 where there is none.
        refused: sizes that the script turned down; empty where the user named the step.
        ran: sizes that it took.
        is_sure: it was asked for, or sizes ran on both sides of one that was turned down. Else it
            is a guess beside another: a least or a largest size.
        top: the largest size that ran, where a larger one was turned down. Above it only its own
            multiples are tried: they tell a step from a largest size. Else 0.
    """

    step: int = 1
    any_up_to: bool = False
    divide: int = 0
    refused: tuple[int, ...] = ()
    ran: tuple[int, ...] = ()
    is_sure: bool = True
    top: int = 0

    def takes(self, size: int) -> bool:
        """Whether a size is one of these."""
        if self.divide:
            return self.divide % size == 0 or size % self.divide == 0
        return size % self.step == 0 or (self.any_up_to and size <= self.step)

    def explain(self, failure: Trial) -> bool:
        """Whether a failure says only that its size is none of these."""
        return failure.outcome in REFUSALS and failure.batch_size in self.refused

    @property
    def sure(self) -> Multiples:
        """Returns this rule where it is sure, and `ANY` where it is a guess."""
        return self if self.is_sure else ANY

    def nearest(self, size: int, most: int, *, up: bool = False) -> int:
        """The nearest size up to a bound that is worth a trial; the bound where there is none.

        Args:
            up: prefer the next larger one.
        """
        if self.divide:
            near = [*self._divisors(), -(-size // self.divide) * self.divide]
            if up:
                near = [other for other in near if other >= size] or near
            near = [other for other in near if 0 < other <= most] or [1]
            return min(near, key=lambda other: (abs(other - size), other))
        below_all = not self.is_sure and not self.top  # all that was turned down
        if (self.any_up_to and size <= self.step) or (below_all and size >= min(self.ran)):
            return min(size, most)
        if self.top and size > self.top:
            telling = -(-size // self.top) * self.top
            if telling <= most:
                return telling
        below, above = size // self.step * self.step, -(-size // self.step) * self.step
        if above <= most and (up or not below or above - size < size - below):
            return above
        return min(below, most // self.step * self.step) or min(size, most)

    def _divisors(self) -> list[int]:
        roots = [part for part in range(1, isqrt(self.divide) + 1) if self.divide % part == 0]
        return [*roots, *(self.divide // part for part in roots)]


ANY = Multiples()
"""Every size is taken."""


def turned_down(failed: Iterable[Trial]) -> set[int]:
    """The sizes of failures by which a script, and no kernel's limit, turns a size down."""
    return {
        trial.batch_size
        for trial in failed
        if trial.outcome in REFUSALS and kernel_limit_of(trial, smaller_ran=True) is None
    }


def multiples_of(ran: Collection[int], refused: Collection[int], asked: int = 1) -> Multiples:
    """The multiples that a script takes: those of 1 where any size may do.

    The smallest step that all sizes agree with is taken: the next trial may ask for more.

    Args:
        ran: sizes that ran.
        refused: sizes that it turned down.
        asked: what the user said that sizes are multiples of.

    >>> multiples_of({8}, {10}).nearest(12, 100)
    16
    >>> multiples_of({2, 8, 16}, {10}).step
    4
    >>> multiples_of({8, 16}, {32}).step
    1
    """
    known = frozenset(refused) - frozenset(ran)
    told = [size for size in known if size % asked == 0]
    found = _found(frozenset(ran), frozenset(told))
    if found is None:
        return Multiples(step=asked)
    step = lcm(found.step, asked)
    any_up_to = found.any_up_to and asked == 1
    return msgspec.structs.replace(found, step=step, any_up_to=any_up_to)


def _found(ran: frozenset[int], refused: frozenset[int]) -> Multiples | None:
    if not ran or not refused:
        return None
    top = max(ran)
    below = frozenset(size for size in refused if size < top)
    # What lies above all that ran may be a bound of another kind.
    for explained in (refused, below):
        step = _smallest_step(ran, explained) if explained else None
        if step is None:
            continue
        between = any(min(ran) < size < top for size in explained)
        return Multiples(
            step=step[0],
            any_up_to=step[1],
            refused=tuple(sorted(explained)),
            ran=tuple(sorted(ran)),
            is_sure=between,
            top=top if max(explained) > top else 0,
        )
    whole = lcm(*ran)
    apart = Multiples(step=1, divide=whole, refused=tuple(sorted(below)), ran=tuple(sorted(ran)))
    inside = [size for size in below if size > min(ran)]
    if len(inside) > 1 and whole <= LARGEST_WHOLE and not any(map(apart.takes, below)):
        return apart  # such as samples of an optimizer step, which batches have to divide
    return None


def _smallest_step(ran: frozenset[int], refused: frozenset[int]) -> tuple[int, bool] | None:
    """The smallest step that takes what ran and nothing that was refused, and whether it takes
    every size up to it.
    """
    for step in range(2, min(max(ran), LARGEST_STEP) + 1):
        if not any(size % step == 0 for size in ran):
            continue
        for any_up_to in (False, True):
            taken = Multiples(step=step, any_up_to=any_up_to)
            if all(map(taken.takes, ran)) and not any(map(taken.takes, refused)):
                return step, any_up_to
    return None
