"""Several sizes inside one running loop, a step or a few at a time.

    round 1:  32 (warm-up, timed)  8 (warm-up, timed)  128 (warm-up, timed)
    round 2:  8 ...                128 ...             32 ...

A window like that of one size; see window.py. It holds no torch.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ..records import Trial, TrialRequest, Turns, TurnsPlan, trial_of
from .gauge import DRAWN
from .messages import Phase, StepSample
from .window import Step, WindowDevice

MIN_ROUNDS = 3
"""Rounds that are made whatever time they take."""


class _Place(NamedTuple):
    """One step of the schedule; `column` is that of its size."""

    round: int
    column: int
    counts: bool
    ends_round: bool


class TurnsWindow:
    """The state of one comparison.

    Args:
        request: with the sizes and their turns.
        device: where the time is read.
        seed: of the order within the rounds; the same on all ranks.
        time_limit_s: no further round after this long.
        num_ahead: steps after a change that the script still makes with batches of the size before.
        agree: where ranks keep in step: waits for all and returns what the leading one decided.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        request: TrialRequest,
        device: WindowDevice,
        *,
        seed: int,
        time_limit_s: float,
        num_ahead: int = 0,
        agree: Callable[[bool], bool] = bool,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        assert request.turns is not None
        self.request = request
        self.phase: Phase = "timing"
        self.num_steps = 0
        self.last_step_s: float | None = None
        self._plan = request.turns
        self._device = device
        self._agree = agree
        self._time_limit_s = time_limit_s
        self._clock = clock
        self._started_s = clock()
        self._num_warmup_steps = self._plan.num_warmup_steps + num_ahead
        self._schedule = _schedule(self._plan, seed, self._num_warmup_steps)
        self._place = next(self._schedule)
        self._steps: list[tuple[_Place, Step]] = []
        self._wrong: Counter[tuple[int, int | None]] = Counter()
        self._proof = ""
        self._step_started: Any = None
        self._wait_s = 0.0
        self._samples = 0
        self._micro = 0

    @property
    def size(self) -> int:
        """The size of the step that comes next."""
        return self._plan.sizes[self._place.column]

    def arrived(self, num_samples: int | None, proof: str, wait_s: float, *, primary: bool) -> None:
        """A batch went to the script after `wait_s` seconds."""
        self._wait_s += wait_s
        if primary:
            self._proof = "indices" if proof == DRAWN else proof
            self._samples += num_samples if num_samples is not None else self.size
            self._micro += 1
            if num_samples != self.size and proof != DRAWN:
                self._wrong[self.size, num_samples] += 1

    def resume(self) -> None:
        """The script goes on: the next step starts now."""
        self._wait_s, self._samples, self._micro = 0.0, 0, 0
        self._step_started = self._device.mark()

    def boundary(self, parts: int = 1) -> bool:
        """A step ended, by the script's next fetch. True when the comparison is complete.

        Args:
            parts: equal steps that it was.
        """
        end = self._device.mark()
        self.num_steps += 1
        if self._place.counts:
            step = Step(
                self._step_started, end, self._wait_s, self._samples, self._micro, parts=parts
            )
            self._steps.append((self._place, step))
        enough = self._place.ends_round and self._enough(self._place.round + 1)
        following = None if self._agree(enough) else next(self._schedule, None)
        if following is None:
            self._device.synchronize()
            return True
        self._place = following
        return False

    def abandon(self) -> None:
        """The comparison is over some other way."""

    def samples(self) -> tuple[StepSample, ...]:
        """Every step that counted, for `samples.jsonl`."""
        return tuple(
            StepSample(step_s=seconds, input_wait_s=step.wait_s, num_samples=step.num_samples)
            for _, step in self._steps
            if (seconds := self._elapsed_s(step)) is not None
        )

    def result(self, ordinal: int, worker: int, *, doubts: tuple[str, ...] = ()) -> Trial:
        """The comparison as the record keeps it."""
        request = self.request
        wrong = self._wrong.most_common(1)
        reason = "sizes that took turns stand in `turns`"
        return trial_of(
            request,
            ordinal=ordinal,
            worker=worker,
            outcome="wrong_size" if wrong else "ok",
            detail=f"asked for {wrong[0][0][0]}, {wrong[0][0][1]} samples arrived" if wrong else "",
            arrived_batch_size=wrong[0][0][1] if wrong else request.batch_size,
            size_proof=self._proof,
            micro_batches=self._usual_micro_batches(),
            num_warmup_steps=self._num_warmup_steps,
            turns=Turns(sizes=self._plan.sizes, step_s=tuple(self._rows())),
            elapsed_s=self._clock() - self._started_s,
            doubts=doubts,
            unavailable=dict.fromkeys(("step_s", "samples_per_s", "memory"), reason),
        )

    # inside ----------------------------------------------------------------------------------

    def _enough(self, num_rounds: int) -> bool:
        if num_rounds < min(MIN_ROUNDS, self._plan.num_rounds):
            return False
        late = self._clock() - self._started_s >= self._time_limit_s
        return late or num_rounds >= self._plan.num_rounds

    def _usual_micro_batches(self) -> int:
        counts = Counter(step.micro_batches for _, step in self._steps if step.micro_batches)
        return counts.most_common(1)[0][0] if counts else 1

    def _rows(self) -> Iterator[tuple[float | None, ...]]:
        """Mean seconds a step of each turn; a turn with a step of another kind has none."""
        usual = self._usual_micro_batches()
        turns: dict[tuple[int, int], list[float | None]] = {}
        for place, step in self._steps:
            seconds = self._elapsed_s(step) if step.micro_batches == usual else None
            turns.setdefault((place.round, place.column), []).append(seconds)
        num_rounds = 1 + max((number for number, _ in turns), default=-1)
        for number in range(num_rounds):
            yield tuple(
                _mean(turns.get((number, column), [])) for column in range(len(self._plan.sizes))
            )

    def _elapsed_s(self, step: Step) -> float | None:
        return step.elapsed_s_on(self._device)


def _schedule(plan: TurnsPlan, seed: int, num_warmup_steps: int) -> Iterator[_Place]:
    """Every step in order. Each round has an order of its own, so that what steady drift or the
    size before adds to one turn it does not add to all of that size.
    """
    rng = random.Random(seed)
    for number in range(plan.num_rounds):
        columns = list(range(len(plan.sizes)))
        rng.shuffle(columns)
        for column in columns:
            for step in range(num_warmup_steps + plan.num_steps[column]):
                counts = step >= num_warmup_steps
                last = step + 1 == num_warmup_steps + plan.num_steps[column]
                yield _Place(number, column, counts, last and column == columns[-1])


def _mean(found: list[float | None]) -> float | None:
    known = [one for one in found if one is not None]
    return sum(known) / len(known) if found and len(known) == len(found) else None
