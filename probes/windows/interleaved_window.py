"""Several sizes inside one running loop, a step or a few at a time.

    round 1:  32 (warm-up, timed)  8 (warm-up, timed)  128 (warm-up, timed)
    round 2:  8 ...                128 ...             32 ...

A window like that of one size; see window.py. It holds no torch.
"""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ...records import INFERRED, CountedTokens, Trial, TrialRequest, Turns, TurnsPlan, trial_of
from ...spread import mean_of_all
from ..devices.device_probe import WindowDevice
from ..loader.batch_size_reader import DRAWN_OTHERWISE
from ..process.messages import Phase, StepSample
from . import clean_steps
from .step_evidence import EvidenceReader, Reading, between
from .timed_step import Step, sampled

if TYPE_CHECKING:
    from ..loader.token_meter import TokenMeter


ROUNDS_PATIENCE = 3
"""Where rounds were disturbed, up to so many times those that were asked for are made."""
LEAST_ROUNDS = 3
"""Rounds that are made whatever time they take."""


class _Place(NamedTuple):
    """One step of the schedule; `column` is that of its size."""

    round: int
    column: int
    counts: bool
    ends_turn: bool
    ends_round: bool


class TurnsWindow:
    """The state of one comparison.

    Args:
        request: with the sizes and their turns.
        device: where the time is read.
        seed: of the order within the rounds; the same on all ranks.
        time_limit_s: no further round after this long.
        deadline_s: the comparison ends after this long, in the middle of a round if need be.
        evidence: reads what the kernel counts about this process; `None` leaves steps unjudged.
        asynchronous: the device goes on while the host waits.
        num_ahead: steps after a change that the script still makes with batches of the size before.
        num_workers: of the loader. They hand over batches in bursts: a turn is judged as a whole.
        meter: counts the tokens of steps that count; `None` where batches do not pass.
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
        deadline_s: float | None = None,
        evidence: EvidenceReader | None = None,
        asynchronous: bool = False,
        num_ahead: int = 0,
        num_workers: int = 0,
        meter: TokenMeter | None = None,
        agree: Callable[[bool], bool] = bool,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        assert request.turns is not None
        self.request = request
        self.phase: Phase = "timing"
        self._num_steps = 0
        self._plan = request.turns
        self._device = device
        self._agree = agree
        self._meter = meter
        if meter is not None:
            meter.begin()
        self._time_limit_s = time_limit_s
        self._deadline_s = deadline_s
        self._evidence = evidence
        self._asynchronous = asynchronous
        self._in_bursts = num_workers > 1
        self._reading: Reading | None = None
        self._clock = clock
        self._started_s = clock()
        self._num_warmup_steps = self._plan.num_warmup_steps + num_ahead
        self._schedule = _schedule(self._plan, seed, self._num_warmup_steps)
        self._place = next(self._schedule)
        self._burst = max(1, num_workers)
        self._turn_s: list[float] = []
        self._resumed_s = self._started_s
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

    @property
    def num_steps(self) -> int:
        """Steps made so far, of all sizes."""
        return self._num_steps

    @property
    def last_step_s(self) -> float | None:
        """Not told: it would differ from turn to turn."""
        return None

    def arrived(self, num_samples: int | None, proof: str, wait_s: float, *, primary: bool) -> None:
        """A batch went to the script after `wait_s` seconds."""
        self._wait_s += wait_s
        if primary:
            self._proof = "indices" if proof in DRAWN_OTHERWISE else proof
            self._samples += num_samples if num_samples is not None else self.size
            self._micro += 1
            if num_samples != self.size and proof not in DRAWN_OTHERWISE:
                self._wrong[self.size, num_samples] += 1

    def resume(self) -> None:
        """The script goes on: the next step starts now."""
        self._wait_s, self._samples, self._micro = 0.0, 0, 0
        if self._meter is not None and self._place.counts:
            self._meter.begin_step()
        if self._evidence is not None and self._place.counts:
            self._reading = self._evidence.read()
        self._step_started = self._device.mark()
        self._resumed_s = self._clock()

    def boundary(self, parts: int = 1) -> bool:
        """A step ended, by the script's next fetch. True when the comparison is complete.

        Args:
            parts: equal steps that it was.
        """
        end = self._device.mark()
        self._num_steps += 1
        if self._place.counts:
            evidence = None
            if self._evidence is not None and self._reading is not None:
                evidence = between(self._reading, self._evidence.read()).per(parts)
            step = Step(
                self._step_started,
                end,
                self._wait_s,
                self._samples,
                self._micro,
                parts=parts,
                evidence=evidence,
                tokens=None if self._meter is None else self._meter.end_step(),
            )
            self._steps.append((self._place, step))
            self._turn_s.append(self._clock() - self._resumed_s)
        if self._plan.most_s is not None and self._agree(self._turn_is_long()):
            self._end_turn()
        enough = self._late() or (self._place.ends_round and self._enough(self._place.round + 1))
        following = None if self._agree(enough) else next(self._schedule, None)
        if following is None:
            self._device.synchronize()
            return True
        if (following.round, following.column) != (self._place.round, self._place.column):
            self._turn_s = []
        self._place = following
        return False

    def samples(self) -> tuple[StepSample, ...]:
        """Every step that counted, for `samples.jsonl`."""
        return sampled(
            [step for _, step in self._steps if self._elapsed_s(step) is not None],
            asynchronous=self._asynchronous,
        )

    def result(self, ordinal: int, worker: int) -> Trial:
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
            turns=self._turns(),
            elapsed_s=self._clock() - self._started_s,
            unavailable=dict.fromkeys(("step_s", "samples_per_s", "memory"), reason),
        )

    # inside ----------------------------------------------------------------------------------

    def _turn_is_long(self) -> bool:
        """Whether the turn has steps that count, in whole bursts, and took all that it may."""
        whole = bool(self._turn_s) and not len(self._turn_s) % self._burst
        return whole and sum(self._turn_s) >= (self._plan.most_s or 0.0)

    def _end_turn(self) -> None:
        """Leaves out the steps of the turn that are to come."""
        while not self._place.ends_turn:
            self._place = next(self._schedule)

    def _enough(self, num_rounds: int) -> bool:
        if num_rounds < min(LEAST_ROUNDS, self._plan.num_rounds):
            return False
        late = self._clock() - self._started_s >= self._time_limit_s
        if late or num_rounds >= ROUNDS_PATIENCE * self._plan.num_rounds:
            return True
        return num_rounds >= self._plan.num_rounds and (
            self._evidence is None or self._num_clean_rounds() >= self._plan.num_rounds
        )

    def _num_clean_rounds(self) -> int:
        """Rounds in which no size was held up."""
        turns = self._turns()
        return sum(
            1
            for row, lost in zip(turns.step_s, turns.lost_s, strict=True)
            if None not in row and not any(lost)
        )

    def _usual_micro_batches(self) -> int:
        counts = Counter(step.micro_batches for _, step in self._steps if step.micro_batches)
        return counts.most_common(1)[0][0] if counts else 1

    def _late(self) -> bool:
        """Whether the comparison has taken all the time that it may."""
        return self._deadline_s is not None and self._clock() - self._started_s >= self._deadline_s

    def _turns(self) -> Turns:
        """Seconds a step of each turn, and what was lost of them.

        A turn with a clean step is the mean of its clean steps. A turn with a step of another kind
        has no time.
        """
        usual = self._usual_micro_batches()
        turns: dict[tuple[int, int], list[Step]] = {}
        for place, step in self._steps:
            turns.setdefault((place.round, place.column), []).append(step)
        num_rounds = 1 + max((number for number, _ in turns), default=-1)
        columns = range(len(self._plan.sizes))
        # Steps of one size are judged together: what is usual differs between sizes.
        cells: dict[tuple[int, int], _Cell] = {}
        for column in columns:
            mine = [(at, steps) for at, steps in turns.items() if at[1] == column]
            cells |= self._judged(mine, usual)
        rows = [
            [cells.get((number, column), _Cell()) for column in columns]
            for number in range(num_rounds)
        ]
        read = self._evidence is not None
        counts = [
            counted_in([step for place, step in self._steps if place.column == column])
            for column in columns
        ]
        known = [count for count in counts if count is not None]
        tokens: dict[str, Any] = {}
        if self._counted:
            tokens = {
                field: tuple(tuple(getattr(cell.held, field) for cell in row) for row in rows)
                for field in Held._fields
            }
            tokens["counted"] = tuple(known) if len(known) == len(counts) else ()
        return Turns(
            sizes=self._plan.sizes,
            step_s=tuple(tuple(cell.step_s for cell in row) for row in rows),
            lost_s=tuple(tuple(cell.lost_s for cell in row) for row in rows) if read else (),
            cpu_s=tuple(tuple(cell.cpu_s for cell in row) for row in rows)
            if read and not self._asynchronous
            else (),
            **tokens,
        )

    def _judged(
        self, turns: list[tuple[tuple[int, int], list[Step]]], usual: int
    ) -> dict[tuple[int, int], _Cell]:
        """Mean seconds, lost seconds and real tokens of each turn of one size.

        A slow step of the script's own that comes now and then would decide a whole round: it is
        left out, and a turn of nothing else has no time. One with longer sequences than the others
        is no such step.
        """
        timed = [
            [
                (step.timed, held_by(step))
                for step in steps
                if step.micro_batches == usual and self._elapsed_s(step) is not None
            ]
            for _, steps in turns
        ]
        every = [step for steps in timed for step in steps]
        judged = clean_steps.judged(
            [step for step, _ in every],
            asynchronous=self._asynchronous,
            bursts=[len(steps) for steps in timed if steps] if self._in_bursts else (),
        )
        work = [held.work for _, held in every if held.work is not None]
        slow = clean_steps.rarely_slow(judged, work if len(work) == len(every) else ())
        # A collection falls into one turn of many; each step of the size has its share of it.
        more_s = judged.collecting.seconds
        pairs = iter(
            zip([each + more_s for each in judged.working_s], judged.lost_s, slow, strict=True)
        )
        cells: dict[tuple[int, int], _Cell] = {}
        for (at, steps), known in zip(turns, timed, strict=True):
            judged_steps = itertools.islice(pairs, len(known))
            mine = [
                (seconds, lost, step.evidence, held)
                for (seconds, lost, is_slow), (step, held) in zip(judged_steps, known, strict=True)
                if not is_slow
            ]
            mine = [step for step in mine if not step[1]] or mine
            if len(known) < len(steps) or not mine:
                cells[at] = _Cell()
                continue
            cpu_s = [each.process_s for _, _, each, _ in mine if each is not None]
            known_s = [value for value in cpu_s if value is not None]
            cells[at] = _Cell(
                sum(seconds for seconds, _, _, _ in mine) / len(mine),
                sum(lost for _, lost, _, _ in mine) / len(mine),
                sum(known_s) / len(mine) if len(known_s) == len(mine) else None,
                mean_of([held for _, _, _, held in mine]),
            )
        return cells

    @property
    def _counted(self) -> bool:
        """Whether each batch told its real tokens, by the same sign that is a proof."""
        meter = self._meter
        if meter is None or meter.evidence is None or meter.evidence in INFERRED:
            return False
        return not meter.why_no_real

    def _elapsed_s(self, step: Step) -> float | None:
        return step.elapsed_s_on(self._device)


class Held(NamedTuple):
    """Tokens of a step; `None` where unknown. Squares are 0 where rows hold no sequence each."""

    real: float | None = None
    positions: float | None = None
    squares: float | None = None

    @property
    def work(self) -> float | None:
        """The count by which a step's time grows at most: squares, else positions."""
        return self.squares or self.positions


NOTHING_HELD = Held()


class _Cell(NamedTuple):
    """One turn: seconds, lost and CPU seconds of a step, what it held; `None` where unknown."""

    step_s: float | None = None
    lost_s: float = 0.0
    cpu_s: float | None = None
    held: Held = NOTHING_HELD


def _schedule(plan: TurnsPlan, seed: int, num_warmup_steps: int) -> Iterator[_Place]:
    """Every step in order. Each round has an order of its own, so that what steady drift or the
    size before adds to one turn it does not add to all of that size.
    """
    rng = random.Random(seed)
    for number in itertools.count():
        columns = list(range(len(plan.sizes)))
        rng.shuffle(columns)
        for column in columns:
            for step in range(num_warmup_steps + plan.num_steps[column]):
                counts = step >= num_warmup_steps
                last = step + 1 == num_warmup_steps + plan.num_steps[column]
                yield _Place(number, column, counts, last, last and column == columns[-1])


def held_by(step: Step) -> Held:
    """Contents of each of the steps that were timed together."""
    tokens = step.tokens
    if tokens is None:
        return NOTHING_HELD
    real, positions = tokens.real, tokens.positions
    return Held(
        None if real is None else real / step.parts,
        None if positions is None else positions / step.parts,
        None if positions is None else (tokens.squares or 0) / step.parts,
    )


def mean_of(steps: Sequence[Held]) -> Held:
    """Mean of the steps of one turn; unknown as soon as one of them is."""
    return Held(*map(mean_of_all, zip(*steps, strict=True))) if steps else NOTHING_HELD


def counted_in(steps: Sequence[Step]) -> CountedTokens | None:
    """The sums over all of these; `None` where one is unknown."""
    tokens = [step.tokens for step in steps]
    num_batches = sum(step.micro_batches * step.parts for step in steps)
    real = positions = squares = 0
    for counted in tokens:
        if counted is None or counted.real is None or counted.positions is None:
            return None
        real, positions = real + counted.real, positions + counted.positions
        squares += counted.squares or 0
    return CountedTokens(num_batches=num_batches, real=real, positions=positions, squares=squares)
