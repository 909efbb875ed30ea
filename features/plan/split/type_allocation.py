"""The exact split over thousands of devices of a few types.

The same rule as `allocation.allocate` (every next portion to the device that would then be done
first), for all devices of a type at once, begun at the level that bisection finds.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

LEVELS = 60
"""Halvings of the level of time: beyond the digits of a float's mantissa that matter."""

Sizes = tuple[tuple[int, int], ...]
"""Sizes within one type: pairs of a size and how many devices get it, the larger size first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceType:
    """Equal devices.

    Attributes:
        step_s: seconds by size; must not fall.
        cap: the most that each may get.
    """

    count: int
    step_s: Callable[[int], float]
    cap: int


def allocate_types(
    total: int, types: Sequence[DeviceType], *, granularity: int = 1, smallest: int = 0
) -> tuple[Sizes, ...] | None:
    """Sizes that sum to `total` over all devices and whose largest time is as small as possible.

    Devices of one type differ by one portion at most.

    Args:
        granularity: every size is a multiple of it; so must `total` and `smallest` be.
        smallest: what each device gets at least.

    Returns:
        `None` where the caps do not hold the total, or the smallest sizes exceed it.

    >>> allocate_types(27, [DeviceType(count=2, step_s=lambda b: 1 + b, cap=99),
    ...                     DeviceType(count=1, step_s=lambda b: 2 + 3 * b, cap=99)])
    (((12, 2),), ((3, 1),))
    """
    if total % granularity or smallest % granularity:
        msg = f"{total} and {smallest} must be multiples of {granularity}"
        raise ValueError(msg)
    if any(smallest > kind.cap for kind in types):
        return None
    sizes = _level(total, types, granularity, smallest)
    left = total - sum(kind.count * size for kind, size in zip(types, sizes, strict=True))
    if left < 0:
        return None
    more = [0] * len(types)
    heap = [
        (kind.step_s(size + granularity), size, place)
        for place, (kind, size) in enumerate(zip(types, sizes, strict=True))
        if kind.count and size + granularity <= kind.cap
    ]
    heapq.heapify(heap)
    while left:
        if not heap:
            return None
        _, _, place = heapq.heappop(heap)
        kind = types[place]
        given = min(kind.count, left // granularity)
        left -= given * granularity
        if given < kind.count:
            more[place] = given
            break
        sizes[place] += granularity
        following = sizes[place] + granularity
        if following <= kind.cap:
            heapq.heappush(heap, (kind.step_s(following), sizes[place], place))
    return tuple(
        _pairs(kind.count, size, extra, granularity)
        for kind, size, extra in zip(types, sizes, more, strict=True)
    )


def within(kind: DeviceType, level_s: float, *, granularity: int, smallest: int, most: int) -> int:
    """The largest size of a device that is done in time, `smallest` if none is.

    Args:
        most: no larger size is looked at.
    """
    low, high = smallest // granularity, min(kind.cap, most) // granularity
    while low < high:
        middle = (low + high + 1) // 2
        if kind.step_s(middle * granularity) <= level_s:
            low = middle
        else:
            high = middle - 1
    return low * granularity


def slowest_s(types: Sequence[DeviceType], sizes: Sequence[Sizes]) -> float:
    """Seconds of the slowest device."""
    return max(
        kind.step_s(size)
        for kind, pairs in zip(types, sizes, strict=True)
        for size, number in pairs
        if number
    )


def _level(total: int, types: Sequence[DeviceType], granularity: int, smallest: int) -> list[int]:
    """Sizes up to a level of time below which no share is left to give, `total` at most."""
    lowest = [smallest] * len(types)

    def held(sizes: Sequence[int]) -> int:
        return sum(kind.count * size for kind, size in zip(types, sizes, strict=True))

    if not any(kind.count for kind in types) or held(lowest) >= total:
        return lowest
    # Between two levels of time lie sizes within these bounds: few are left to look at soon.
    highest = [max(min(kind.cap, total), smallest) for kind in types]
    low_s, high_s = 0.0, max(map(_step_s, types, highest))
    for _ in range(LEVELS):
        if all(high - low < granularity for low, high in zip(lowest, highest, strict=True)):
            break
        middle_s = (low_s + high_s) / 2
        sizes = [
            within(kind, middle_s, granularity=granularity, smallest=low, most=high)
            for kind, low, high in zip(types, lowest, highest, strict=True)
        ]
        if held(sizes) <= total:
            low_s, lowest = middle_s, sizes
        else:
            high_s, highest = middle_s, sizes
    return lowest


def _step_s(kind: DeviceType, size: int) -> float:
    return kind.step_s(size)


def _pairs(count: int, size: int, extra: int, granularity: int) -> Sizes:
    pairs = ((size + granularity, extra), (size, count - extra))
    return tuple(pair for pair in pairs if pair[1])
