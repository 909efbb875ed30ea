"""Steps with and without gradient synchronisation in turn: what DDP's communication costs.

The flag that `DistributedDataParallel.no_sync` sets is set for a whole step, forward included,
and taken back for the next one. Single steps drift with the machine; the difference within a pair
does not. Each step that counts follows one of its own kind, without a meeting of the ranks
between the two: in training the end of a step on one rank meets the begin of the next one on
another, and the ranks wait for each other in the synchronisation alone. After each pair every
rank may make steps while the others wait (alone_turns.py). The ranks' weights drift apart
meanwhile, so nothing is measured after this that would need them; they are thrown away with the
process.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any, Literal

from ...records import RankPairs
from ...spread import spread_of
from ..devices.device_probe import WindowDevice
from .alone_turns import AloneTurns

WARMUP_PAIRS = 2
MIN_PAIRS = 8
MAX_PAIRS = 40
PRECISE = 0.05
"""Half-width of the difference's interval, as a share of the step, at which the pairs suffice."""

Kind = Literal["to compute", "compute", "to whole", "whole", "alone"]
"""A step of all ranks without synchronisation, with it, of one rank alone; those that begin with
"to" only come before one that counts."""


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
        self._kind: Kind = "to compute"
        self._step = 0
        self._pairs = 0
        self._follows = False
        self._start: Any = None
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

    def resume(self) -> None:
        """The script goes on with the next step."""
        for model in self._ddp:
            model.require_backward_grad_sync = self._syncs
        if not self._follows:
            self._device.synchronize()
        self._start = self._device.mark()

    def boundary(self, parts: int = 1) -> bool:
        """A step ended. True when there are enough pairs, on all ranks at once.

        Args:
            parts: equal steps that it was.
        """
        end = self._device.mark()
        if any(model.require_backward_grad_sync is not self._syncs for model in self._ddp):
            self._overridden = True
        self._step += 1
        step = (self._start, end, parts)
        warm = self._pairs >= WARMUP_PAIRS
        if self._kind in ("to compute", "to whole"):  # the device is not waited for either
            self._kind = "compute" if self._kind == "to compute" else "whole"
            self._follows = True
            return False
        self._follows = False
        self._device.synchronize()
        if self._kind == "alone":
            assert self._turns is not None
            if warm and self._turns.counts:
                self._alone.append(step)
            if not self._turns.made():
                self._kind = "to compute"
            return False
        if self._kind == "compute":
            if warm:
                self._compute.append(step)
            self._kind = "to whole"
            self._agree(False)
            return False
        if warm:
            self._whole.append(step)
        self._read_log(keep=warm)
        self._pairs += 1
        if self._agree(self._enough()):
            self.abandon()
            return True
        self._kind = "to compute"
        if self._turns is not None:
            step_s = (self._device.elapsed_s(self._start, end) or 0.0) / parts
            if self._turns.begin(step_s):
                self._kind = "alone"
        return False

    def abandon(self) -> None:
        """Puts the flag back."""
        for model in self._ddp:
            model.require_backward_grad_sync = True

    def result(self) -> RankPairs:
        """What this rank measured."""
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

    @property
    def _syncs(self) -> bool:
        return self._kind in ("to whole", "whole")

    def _seconds(self, marks: list[tuple[Any, Any, int]]) -> tuple[float, ...]:
        return tuple(
            (self._device.elapsed_s(start, end) or 0.0) / parts for start, end, parts in marks
        )

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
