"""Least squares of relative misses, with no number below zero.

A value is a sum of terms, each times a number that is looked for. A row holds the terms over the
value, so that it shall sum to 1 and all values weigh alike. Numbers below zero make no sense of
time and memory: all subsets of the columns are tried (Lawson and Hanson, Solving Least Squares
Problems, chapter 23; with three columns that is quickly done).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from math import fsum, sqrt
from typing import NamedTuple

_TINY = 1e-12


class Fit(NamedTuple):
    """Numbers that fit rows.

    Attributes:
        numbers: one for each column; 0 for those that are left out.
        num_used: columns that are not left out.
        misses: what each row sums to beyond 1.
    """

    numbers: tuple[float, ...]
    num_used: int
    misses: tuple[float, ...]

    @property
    def squares(self) -> float:
        """The sum of the squared misses."""
        return fsum(miss * miss for miss in self.misses)


def fits(rows: Sequence[Sequence[float]], columns: Iterable[int]) -> list[Fit]:
    """The least squares of each subset of the columns, without those with a number below zero."""
    allowed, found = tuple(columns), []
    for num in range(1, len(allowed) + 1):
        for used in combinations(allowed, num):
            parts = [[row[column] for column in used] for row in rows]
            values = solution(parts, [fsum(column) for column in zip(*parts, strict=True)])
            if values is None or min(values) < 0:
                continue
            by_column = dict(zip(used, values, strict=True))
            misses = (fsum(a * b for a, b in zip(part, values, strict=True)) - 1 for part in parts)
            numbers = tuple(by_column.get(column, 0.0) for column in range(len(rows[0])))
            found.append(Fit(numbers, num, tuple(misses)))
    return found


def solution(rows: Sequence[Sequence[float]], right: Sequence[float]) -> list[float] | None:
    """The solution x of RᵀR x = right; `None` where there is none, or more than one.

    Args:
        rows: those of R.
    """
    size = len(right)
    matrix = [[fsum(row[i] * row[j] for row in rows) for j in range(size)] for i in range(size)]
    # Each number is of its own order of magnitude: equations are scaled first.
    scale = [sqrt(matrix[i][i]) or 1.0 for i in range(size)]
    system = [
        [*(matrix[i][j] / scale[i] / scale[j] for j in range(size)), right[i] / scale[i]]
        for i in range(size)
    ]
    for place in range(size):
        best = max(range(place, size), key=lambda row: abs(system[row][place]))
        if abs(system[best][place]) < _TINY:
            return None
        system[place], system[best] = system[best], system[place]
        for other in range(size):
            if other != place:
                factor = system[other][place] / system[place][place]
                system[other] = [
                    mine - factor * theirs
                    for mine, theirs in zip(system[other], system[place], strict=True)
                ]
    return [system[i][size] / system[i][i] / scale[i] for i in range(size)]
