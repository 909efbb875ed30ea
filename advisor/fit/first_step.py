"""The requests of a training's first two steps, from those of a step in the middle. Pure.

The first step has neither gradients nor an optimizer's state, so its tensors get whole segments.
The state then takes room in what they leave, and the next step finds those segments cut to pieces:
it may reserve much more. Steps after that are as the second.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Held(NamedTuple):
    """What lived before a step.

    Attributes:
        num: so many of the step's requests, the first, are of it.
        late: numbers of those of them, counted from 1, that a training's first step makes:
            gradients and the optimizer's state.
    """

    num: int = 0
    late: tuple[int, ...] = ()


def first_two_steps(requests: Iterable[int], lived: Held) -> list[int]:
    """The requests of both.

    Args:
        requests: of one step; see `CachingAllocator.serve`.
        lived: before it.
    """
    requests = list(requests)
    held, own = requests[: lived.num], requests[lived.num :]
    remade = _remade(held, own)
    made_first = {*lived.late, *remade}
    two = _Sequence()
    first = {
        number: two.ask(size) for number, size in enumerate(held, 1) if number not in made_first
    }
    numbers = two.step(own, lived.num, first)
    second = {}
    for number, size in enumerate(held, 1):
        lives = numbers.get(remade.get(number, number))
        second[number] = two.ask(size) if lives is None else lives
    two.step(own, lived.num, second)
    return two.requests


def _remade(held: Sequence[int], own: Sequence[int]) -> dict[int, int]:
    """What a step gives back of what lived before it, and makes again for the next one.

    The last batch, its logits and gradients are such; before the first step there are none.

    Returns:
        For each number of those that lived before, that of what takes its place.
    """
    made = dict(enumerate((size for size in own if size > 0), len(held) + 1))
    given_back = {-request for request in own if request < 0}
    left = {number: size for number, size in made.items() if number not in given_back}
    remade: dict[int, int] = {}
    before = {number: size for number, size in enumerate(held, 1) if number in given_back}
    for number, size in before.items():
        same = next((each for each in left if left[each] == size), None)
        if same is not None:
            remade[number] = same
            del left[same]
    # What is left of a step of another batch size, from the largest.
    others = (number for number in before if number not in remade)
    by_size = sorted(others, key=before.__getitem__, reverse=True)
    remade.update(zip(by_size, sorted(left, key=left.__getitem__, reverse=True), strict=False))
    return remade


class _Sequence:
    """Requests that are numbered anew."""

    def __init__(self) -> None:
        self.requests: list[int] = []
        self._number = 0

    def ask(self, size: int) -> int:
        """A request; its number."""
        self.requests.append(size)
        self._number += 1
        return self._number

    def step(self, requests: Sequence[int], num_held: int, held: dict[int, int]) -> dict[int, int]:
        """One more step.

        Args:
            requests: of it.
            num_held: so many requests came before it.
            held: what lived before, by its number in the step.

        Returns:
            What lives after it, by its number in the step.
        """
        numbers = dict(held)
        for request in requests:
            if request > 0:
                num_held += 1
                numbers[num_held] = self.ask(request)
            elif -request in numbers:
                self.requests.append(-numbers.pop(-request))
        return numbers
