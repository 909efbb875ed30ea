"""The requests of a training's first steps, from those of a step in the middle. Pure.

The first step has neither gradients nor an optimizer's state, so its tensors get whole segments.
The state then takes room in what they leave, and the next step finds those segments cut to pieces:
it may reserve much more. Where memory is short, it gives back segments that the third step misses.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

from ....records import LivedBefore

NUM_STEPS = 3


def first_steps(
    requests: Iterable[int], lived: LivedBefore, workspace: int = 0, num_steps: int = NUM_STEPS
) -> list[int]:
    """The requests of these.

    Args:
        requests: of one step; see `CachingAllocator.serve`.
        lived: before it.
        workspace: bytes that cuBLAS asks torch's allocator for at the first product of each thread,
            and keeps.
        num_steps: how many steps.
    """
    requests = list(requests)
    held, own = requests[: lived.num], requests[lived.num :]
    remade = _remade(held, own)
    made_first = {*lived.late, *remade}
    steps = _Sequence()
    lives = {
        number: steps.ask(size) for number, size in enumerate(held, 1) if number not in made_first
    }
    begins = {at - lived.num: workspace for at in lived.products} if workspace else {}
    passing: dict[int, list[int]] = {}
    for at, size in lived.passing:
        passing.setdefault(at - lived.num, []).append(size)
    emptied = {at - lived.num for at in lived.emptied}
    left = steps.step(own, lived.num, lives, workspaces=begins, passing=passing, emptied=emptied)
    for _ in range(1, num_steps):
        lives = {}
        for number, size in enumerate(held, 1):
            of_last = left.get(remade.get(number, number))
            lives[number] = steps.ask(size) if of_last is None else of_last
        left = steps.step(own, lived.num, lives, passing=passing)
    return steps.requests


def _remade(held: Sequence[int], own: Sequence[int]) -> dict[int, int]:
    """Pairs tensors from before a step that it frees with those that it makes in their place.

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

    def step(
        self,
        requests: Sequence[int],
        num_held: int,
        held: Mapping[int, int],
        *,
        workspaces: Mapping[int, int] = {},
        passing: Mapping[int, Sequence[int]] = {},
        emptied: Container[int] = (),
    ) -> dict[int, int]:
        """One more step.

        Args:
            requests: of it.
            num_held: so many requests came before it.
            held: what lived before, by its number in the step.
            workspaces: what is asked for, and kept, before a request of the step.
            passing: what is asked for there, and given back at once.
            emptied: where the cache is emptied first.

        Returns:
            What lives after it, by its number in the step.
        """
        numbers = dict(held)
        for at, request in enumerate(requests):
            if at in emptied:
                self.requests.append(0)
            if at in workspaces:
                self.ask(workspaces[at])
            for size in passing.get(at, ()):
                self.requests.append(-self.ask(size))
            if request > 0:
                num_held += 1
                numbers[num_held] = self.ask(request)
            elif -request in numbers:
                self.requests.append(-numbers.pop(-request))
        return numbers
