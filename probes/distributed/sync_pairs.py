"""Steps with and without gradient synchronisation in turn: what DDP's communication costs.

The flag that `DistributedDataParallel.no_sync` sets is set for whole steps, forward included, and
taken back for the next ones. Single steps drift with the machine; the difference within a pair
does not. What counts follows steps of its own kind, without a meeting of the ranks in between: in
training the end of a step on one rank meets the begin of the next one on another, and the ranks
wait for each other in the synchronisation alone. Of short steps several count together, between
which nothing else is done. After each pair every rank may make steps while the others wait
(alone_turns.py). The ranks' weights drift apart meanwhile, so nothing is measured after this that
would need them; they are thrown away with the process.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from ...records import RankPairs
from ...spread import spread_of
from ..devices.device_probe import WindowDevice
from .alone_turns import AloneTurns

WARMUP_PAIRS = 1
MIN_PAIRS = 8
MAX_PAIRS = 40
PRECISE = 0.05
"""Half-width of the difference's interval, as a share of the step, at which the pairs suffice."""

Kind = Literal["compute", "whole", "alone"]
"""Steps of all ranks without synchronisation; with it; of one rank alone."""


class PairWindow:
    """The state of one measurement.

    Args:
        rank: of this process.
        ddp: its DistributedDataParallel modules, at least one.
        device: where time is read.
        agree: see lockstep.Agreement.
        time_limit_s: no further pair after this long.
        clock: monotonic seconds.
        turns: steps of each rank while the others wait; without them there are only pairs.
    """

    def __init__(
        self,
        rank: int,
        ddp: list[Any],
        device: WindowDevice,
        *,
        agree: Callable[[bool], bool],
        time_limit_s: float,
        clock: Callable[[], float] = time.perf_counter,
        turns: AloneTurns | None = None,
    ) -> None:
        self._rank = rank
        self._ddp = ddp
        self._device = device
        self._agree = agree
        self._end_s = clock() + time_limit_s
        self._clock = clock
        self._turns = turns
        self._kind: Kind = "compute"
        self._stretch = LONG_STRETCH
        self._left = self._stretch.num_steps
        self._step = 0
        self._pairs = 0
        self._start: Any = None
        self._end: Any = None
        self._compute: list[tuple[Any, Any, int]] = []
        self._whole: list[tuple[Any, Any, int]] = []
        self._alone: list[tuple[Any, Any, int]] = []
        self._exposed: list[float] = []
        self._iterations = [-1] * len(ddp)
        self._overridden = False
        for model in ddp:
            with contextlib.suppress(AttributeError, RuntimeError):
                model._set_ddp_runtime_logging_sample_rate(1)

    @property
    def num_steps(self) -> int:
        """Steps made so far."""
        return self._step

    @property
    def is_within(self) -> bool:
        """Whether the next step follows one of its own kind, with nothing in between."""
        return 0 < self._left < self._stretch.num_steps

    def resume(self) -> None:
        """The script goes on with the next step."""
        for model in self._ddp:
            model.require_backward_grad_sync = self._kind == "whole"
        if not self.is_within:
            self._device.synchronize()
        if self._left > self._stretch.num_counted:
            self._start = self._device.mark()

    def boundary(self, parts: int = 1) -> bool:
        """A step ended. True when there are enough pairs, on all ranks at once.

        Args:
            parts: equal steps that it was.
        """
        syncs = self._kind == "whole"
        if any(model.require_backward_grad_sync is not syncs for model in self._ddp):
            self._overridden = True
        self._step += 1
        self._left -= 1
        if self._kind == "alone" and self._turns is not None:
            self._turns.made()
        if self._left == 1:
            self._end = self._device.mark()
        if self._left:
            return False
        self._device.synchronize()
        stretch = (self._start, self._end, parts * self._stretch.num_counted)
        warm = self._pairs >= WARMUP_PAIRS
        if self._kind == "alone":
            assert self._turns is not None
            if warm and not self._turns.unavailable:
                self._alone.append(stretch)
            self._turns.end()
            self._begin("compute")
            return False
        if self._kind == "compute":
            if warm:
                self._compute.append(stretch)
            # Rank 0 decides for all: they have to make the same steps.
            step_s = self._per_step(stretch)
            short, shortest = (
                self._agree(step_s < limit_s) for limit_s in (SHORT_STEP_S, SHORTEST_STEP_S)
            )
            self._stretch = (
                SHORTEST_STRETCH if shortest else SHORT_STRETCH if short else LONG_STRETCH
            )
            self._begin("whole")
            return False
        if warm:
            self._whole.append(stretch)
        self._read_log(keep=warm)
        self._pairs += 1
        if self._agree(self._enough()):
            self.abandon()
            return True
        turn = self._turns is not None and self._turns.begin(self._per_step(stretch))
        self._begin("alone" if turn else "compute")
        return False

    def abandon(self) -> None:
        """Puts the flag back."""
        for model in self._ddp:
            model.require_backward_grad_sync = True

    def result(self) -> RankPairs:
        """The pairs of steps that this rank measured."""
        unavailable: dict[str, str] = {}
        exposed = tuple(self._exposed)
        if len(exposed) != len(self._whole):
            exposed = ()
            unavailable["exposed_s"] = "this torch's DDP keeps no clock of its communication"
        if self._overridden:
            reason = "the script switches gradient synchronisation itself in the middle of a step"
            return RankPairs(
                rank=self._rank, compute_s=(), step_s=(), unavailable={"compute_s": reason}
            )
        if not self._alone:
            why = self._turns.unavailable if self._turns is not None else ""
            unavailable["alone_s"] = why or "no rank was measured by itself"
        return RankPairs(
            rank=self._rank,
            compute_s=self._seconds(self._compute),
            step_s=self._seconds(self._whole),
            exposed_s=exposed,
            alone_s=self._seconds(self._alone),
            unavailable=unavailable,
        )

    # inside ----------------------------------------------------------------------------------

    def _begin(self, kind: Kind) -> None:
        self._kind = kind
        self._left = self._stretch.num_steps

    def _seconds(self, marks: list[tuple[Any, Any, int]]) -> tuple[float, ...]:
        return tuple(map(self._per_step, marks))

    def _per_step(self, marks: tuple[Any, Any, int]) -> float:
        start, end, parts = marks
        return (self._device.elapsed_s(start, end) or 0.0) / parts

    def _enough(self) -> bool:
        num = len(self._whole)
        if num < MIN_PAIRS:
            return False
        if num >= MAX_PAIRS or self._clock() >= self._end_s:
            return True
        compute, whole = self._seconds(self._compute), self._seconds(self._whole)
        spread = spread_of(
            [whole_s - compute_s for compute_s, whole_s in zip(compute, whole, strict=True)]
        )
        step = spread_of(whole)
        assert spread is not None
        assert step is not None
        return (spread.high - spread.low) / 2 <= PRECISE * step.median

    def _read_log(self, *, keep: bool) -> None:
        """Communication that backward computation did not cover, by DDP's own clock."""
        total = 0.0
        for index, model in enumerate(self._ddp):
            try:
                log = model._get_ddp_logging_data()
                comm, covered = log["backward_comm_time"], log["backward_compute_comm_overlap_time"]
                iteration = log["iteration"]
            except (AttributeError, KeyError, RuntimeError):
                return
            if iteration == self._iterations[index]:
                return
            self._iterations[index] = iteration
            total += (comm - covered) / 1e9
        if keep:
            self._exposed.append(total)


# Steps of one kind in a row, of which those in the middle count.


class Stretch(NamedTuple):
    """How many steps are made in a row.

    Attributes:
        num_first: that do not count: they find the caches as another kind left them, a core that
            slept is not at its full speed, and ranks that were woken together may share a core.
        num_counted: whose mean counts.
    """

    num_first: int
    num_counted: int

    @property
    def num_steps(self) -> int:
        """All of them. The last one keeps a rank that is early busy while others make theirs."""
        return self.num_first + self.num_counted + 1


LONG_STRETCH = Stretch(1, 1)
SHORT_STRETCH = Stretch(2, 4)
SHORTEST_STRETCH = Stretch(4, 12)
"""Stretches have more steps where steps are short: else what is done between two stretches would be
a part of them, and the scheduler moves processes once in some milliseconds."""

SHORT_STEP_S, SHORTEST_STEP_S = 0.05, 0.01
"""Steps below these seconds are short, or the shortest."""
