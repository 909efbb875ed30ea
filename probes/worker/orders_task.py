"""The same samples in two orders, a step of each in turn: what batches of like length would gain.

The script gets batches that were laid before; what its loader yields meanwhile is thrown away. So
the step has the loader's time in both orders alike.
"""

from __future__ import annotations

import random
import sys
from math import hypot
from statistics import correlation
from typing import Any, NamedTuple

import msgspec
import torch

from ...records import BatchOrder, OrderTrial, Spread
from ...spread import rate_of_sums, ratio_of
from ..doors.caught_errors import CaughtErrors
from ..loader.batch_size_reader import BatchSizeReader
from ..loader.loader_samples import LaidBatch
from ..process.endings import NO_STEP
from ..process.messages import OrdersResult
from ..process.orders import RunOrders
from .supervisor_line import wait_for_the_end
from .task import Boundary, TaskContext

WARM_UP = 2
"""First steps that do not count."""
MIN_STEPS = 4
"""Of each order."""
DRAWN, GROUPED = 0, 1
MAX_AHEAD = 3
"""Batches that a framework takes ahead of their steps, at most."""
MIN_CORRELATION = 0.3
"""Of a step's time with the positions of its batches; below that nothing tells whose time it is."""


class _Timed(NamedTuple):
    """One step: whose order, its marks, and what its batches hold."""

    order: int
    start: Any
    end: Any
    real: int
    positions: int


class OrdersTask:
    """One comparison.

    Args:
        order: its size and its time.
        context: where it runs.
    """

    def __init__(self, order: RunOrders, context: TaskContext) -> None:
        self._order = order
        self._context = context
        self._batches: tuple[list[LaidBatch], list[LaidBatch]] = ([], [])
        self._next = [0, 0]
        self._turns: list[int] = []
        self._present = DRAWN
        self._step: list[LaidBatch] = []
        self._num_steps = 0
        self._started: Any = None
        self._timed: list[_Timed] = []
        self._began: Any = None

    def begin(self) -> bool:
        """Lays the batches; from the next fetch on the script gets them."""
        context, order = self._context, self._order
        samples = context.door.samples()
        if isinstance(samples, str):
            return self._give_up(samples)
        try:
            with torch.random.fork_rng(devices=[]):  # the script's own draws stay its own
                laid = samples.laid(order.batch_size, order.num_batches)
        except Exception as error:  # noqa: BLE001  the script's dataset, asked out of turn
            return self._give_up(f"its samples cannot be loaded: {type(error).__name__}: {error}")
        if isinstance(laid, str):
            return self._give_up(laid)
        if len(laid[DRAWN]) < MIN_STEPS:
            return self._give_up("an epoch has too few batches of this size")
        if not context.door.replace_batches(self._substitute):
            return self._give_up("batches cannot be replaced behind this door")
        self._batches = laid
        context.door.ask(order.batch_size)
        self._choose_turn()
        context.line.begin_task()
        self._began = self._started = context.device.mark()
        return True

    def arrived(self, num_samples: int | None, proof: str, wait_s: float, *, primary: bool) -> None:
        """The batches are counted as they are replaced."""

    def boundary(self, boundary: Boundary) -> bool:  # noqa: ARG002  its parts and time are a whole
        """A step ended. True when the comparison is over."""
        context = self._context
        end = context.device.mark()
        self._num_steps += 1
        batches, self._step = self._step, []
        self._timed.append(
            _Timed(
                self._present,
                self._started,
                end,
                sum(laid.tokens.real or 0 for laid in batches),
                sum(laid.tokens.positions or 0 for laid in batches),
            )
        )
        context.device.synchronize()
        spent_s = context.device.elapsed_s(self._began, end) or 0.0
        if spent_s > self._order.time_limit_s or not self._choose_turn():
            context.door.replace_batches(_as_it_is)
            context.line.send(OrdersResult(orders=self._result()))
            return True
        context.line.show("timing", num_steps=self._num_steps, batch_size=self._order.batch_size)
        self._started = context.device.mark()
        return False

    def stepped_elsewhere(self) -> None:
        """Steps of other tasks of the script's do not matter here."""

    def no_step(self, num_fetches: int, caught_errors: CaughtErrors) -> None:  # noqa: ARG002
        """Nothing can be said."""
        self._give_up(NO_STEP)
        wait_for_the_end()

    # inside ----------------------------------------------------------------------------------

    def _choose_turn(self) -> bool:
        """Whose step comes next; each round has both orders, by lot. False: all were taken."""
        if self._num_steps < WARM_UP:
            self._present = self._num_steps % 2
            return True
        if not self._turns:
            left = [len(batches) - taken for batches, taken in zip(self._batches, self._next)]  # noqa: B905
            if min(left) < 1:
                return False
            self._turns = random.Random(self._num_steps).sample([DRAWN, GROUPED], 2)
        self._present = self._turns.pop()
        return True

    def _substitute(self, batch: Any, num_samples: int | None, reader: BatchSizeReader) -> Any:  # noqa: ARG002
        batches = self._batches[self._present]
        if self._num_steps < WARM_UP:
            laid = batches[self._num_steps % len(batches)]
        else:
            laid = batches[self._next[self._present] % len(batches)]
            self._next[self._present] += 1
        self._step.append(laid)
        return laid.batch

    def _result(self) -> OrderTrial:
        timed = self._steps_with_their_batches()
        if isinstance(timed, str):
            return OrderTrial(
                batch_size=self._order.batch_size, reason=timed, options=framework_options()
            )
        rates: list[Spread] = []
        padding: list[float] = []
        for order in (DRAWN, GROUPED):
            steps = [
                (step, seconds)
                for step, seconds in timed
                if step.order == order and step.positions and seconds
            ]
            rate = rate_of_sums([step.real for step, _ in steps], [took for _, took in steps])
            if rate is None or len(steps) < MIN_STEPS:
                reason = "the time was over before there were enough steps"
                return OrderTrial(
                    batch_size=self._order.batch_size, reason=reason, options=framework_options()
                )
            rates.append(rate)
            padding.append(1 - sum(s.real for s, _ in steps) / sum(s.positions for s, _ in steps))
        return OrderTrial(
            batch_size=self._order.batch_size,
            num_batches=min(rate.num_samples for rate in rates),
            drawn_per_s=rates[DRAWN],
            grouped_per_s=rates[GROUPED],
            drawn_padding=padding[DRAWN],
            grouped_padding=padding[GROUPED],
            gain=_gain(rates[GROUPED], rates[DRAWN]),
            options=framework_options(),
        )

    def _steps_with_their_batches(self) -> list[tuple[_Timed, float]] | str:
        """Each fetched batch with the time of the step that was made on it.

        A framework may take batches ahead of their steps (Accelerate takes one). By how many, the
        times tell: they follow what their batches hold.
        """
        seconds = [
            self._context.device.elapsed_s(step.start, step.end) or 0.0 for step in self._timed
        ]
        best: tuple[float, int] = (MIN_CORRELATION, -1)
        for ahead in range(MAX_AHEAD + 1):
            held = [step.positions for step in self._timed[WARM_UP : len(seconds) - ahead]]
            took = seconds[WARM_UP + ahead :]
            if len(held) >= 2 * MIN_STEPS and len(set(held)) > 1 and len(set(took)) > 1:
                best = max(best, (correlation(held, took), ahead))
        ahead = best[1]
        if ahead < 0:
            return "the times of the steps do not follow what their batches hold"
        batches = self._timed[WARM_UP : len(seconds) - ahead]
        return list(zip(batches, seconds[WARM_UP + ahead :], strict=True))

    def _give_up(self, reason: str) -> bool:
        self._context.line.send(
            OrdersResult(
                orders=OrderTrial(
                    batch_size=self._order.batch_size, reason=reason, options=framework_options()
                )
            )
        )
        return False


def framework_options() -> tuple[tuple[BatchOrder, str], ...]:
    """What the installed frameworks that the script uses call these orders; nothing is imported."""
    options: dict[BatchOrder, str] = {}
    if "transformers.trainer" in sys.modules:
        arguments = getattr(
            sys.modules.get("transformers.training_args"), "TrainingArguments", None
        )
        fields = getattr(arguments, "__dataclass_fields__", {})
        if "train_sampling_strategy" in fields:
            options["grouped"] = 'TrainingArguments(train_sampling_strategy="group_by_length")'
        elif "group_by_length" in fields:
            options["grouped"] = "TrainingArguments(group_by_length=True)"
    config = getattr(sys.modules.get("trl.trainer.sft_config"), "SFTConfig", None)
    if "packing" in getattr(config, "__dataclass_fields__", {}):
        options["packed"] = "SFTConfig(packing=True)"
        if "grouped" in options:
            options["grouped"] = options["grouped"].replace("TrainingArguments", "SFTConfig")
    return tuple(options.items())


def _gain(grouped: Spread, drawn: Spread) -> Spread:
    """The ratio, whose relative errors add up as independent ones do."""
    ratio = ratio_of(grouped, drawn)
    half = ratio.median * hypot(grouped.relative_half_width, drawn.relative_half_width)
    low, high = max(0.0, ratio.median - half), ratio.median + half
    return msgspec.structs.replace(ratio, low=low, high=high)


def _as_it_is(batch: Any, num_samples: int | None, reader: BatchSizeReader) -> Any:  # noqa: ARG001
    return batch
