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
    num_held, late = lived
    two = _Sequence()
    made_first = set(late)
    held = {
        number: two.ask(size)
        for number, size in enumerate(requests[:num_held], 1)
        if number not in made_first
    }
    freed = {-request for request in requests if request < 0}
    left = two.step(requests[num_held:], num_held, held)
    lived_then: dict[int, int] = {}
    for number, size in enumerate(requests[:num_held], 1):
        if number in freed:  # the step makes another, which the next one gives back
            same = next((each for each in left if each[1] == size), None)
            if same is not None:
                left.remove(same)
            lived_then[number] = two.ask(size) if same is None else same[0]
        else:
            lived_then[number] = two.ask(size) if number in made_first else held[number]
    two.step(requests[num_held:], num_held, lived_then)
    return two.requests


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

    def step(
        self, requests: Sequence[int], num_held: int, held: dict[int, int]
    ) -> list[tuple[int, int]]:
        """One more step.

        Args:
            requests: of it.
            num_held: so many requests came before it.
            held: what lived before, by its number in the step.

        Returns:
            Number and size of what the step leaves.
        """
        numbers, sizes = dict(held), {}
        for request in requests:
            if request > 0:
                num_held += 1
                numbers[num_held] = self.ask(request)
                sizes[num_held] = request
            elif -request in numbers:
                self.requests.append(-numbers.pop(-request))
                sizes.pop(-request, None)
        return [(numbers[number], size) for number, size in sizes.items()]
