"""Processes of several sizes that live at once: one goes on at a time, the others wait.

A process waits for its next order between two steps, so nothing has to be stopped. What the machine
does meanwhile meets all sizes of a round, as where they take turns in one process.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from ...probes.process.messages import Result, StepSample
from ...probes.process.orders import RunTrial
from ...probes.process.worker_like import WorkerLike
from ...probes.windows.interleaved_window import ROUNDS_PATIENCE
from ...records import Trial, Turns, TurnsPlan


class WorkersInTurn:
    """Carries out a comparison.

    Args:
        workers: by size, each at its training loop.
    """

    def __init__(self, workers: Mapping[int, WorkerLike]) -> None:
        self._workers = workers

    def ask(self, order: RunTrial) -> Result:
        """Makes the rounds; the trial is as one of a single process.

        Raises:
            WorkerGone: one of them is over.
        """
        plan, begun_s = order.request.turns, time.monotonic()
        assert plan is not None
        rng = random.Random(order.ordinal)
        rounds: list[dict[int, Trial]] = []
        steps: list[StepSample] = []
        while True:
            together: dict[int, Trial] = {}
            for size in rng.sample(plan.sizes, len(plan.sizes)):
                spent_s = time.monotonic() - begun_s
                result = self._workers[size].ask(_one_turn(order, size, spent_s))
                together[size] = result.trial
                steps += result.steps
                if not result.trial.ran:
                    return result
            lasted_s = time.monotonic() - begun_s
            if all(_turn_of(trial).step_s for trial in together.values()):  # none was cut short
                rounds.append(together)
            if _enough(order, plan, rounds, lasted_s):
                break
        turns = msgspec.structs.replace(
            _turns(plan, rounds), workers=tuple(together[size].worker for size in plan.sizes)
        )
        last = together[max(plan.sizes)]
        trial = msgspec.structs.replace(last, turns=turns, elapsed_s=lasted_s)
        return Result(trial=trial, steps=tuple(steps))


def _one_turn(order: RunTrial, size: int, spent_s: float) -> RunTrial:
    """A single turn of one size."""
    plan = order.request.turns
    assert plan is not None
    num_steps = plan.num_steps[plan.sizes.index(size)]
    turn = msgspec.structs.replace(plan, sizes=(size,), num_steps=(num_steps,), num_rounds=1)
    request = msgspec.structs.replace(order.request, batch_size=size, turns=turn)
    left_s = None if order.deadline_s is None else max(0.0, order.deadline_s - spent_s)
    # Without a time of its own: another round of one size alone would say nothing.
    return msgspec.structs.replace(order, request=request, time_limit_s=0.0, deadline_s=left_s)


def _enough(
    order: RunTrial, plan: TurnsPlan, rounds: list[dict[int, Trial]], lasted_s: float
) -> bool:
    """All rounds were made: they have cost the processes. Disturbed ones are made again, as in one
    process, within the time of a trial."""
    if order.deadline_s is not None and lasted_s >= order.deadline_s:
        return True
    if len(rounds) < plan.num_rounds:
        return False
    if lasted_s >= order.time_limit_s or len(rounds) >= ROUNDS_PATIENCE * plan.num_rounds:
        return True
    turns = _turns(plan, rounds)
    lost = turns.lost_s or ((),) * len(rounds)
    clean = [
        None not in row and not any(lost_s) for row, lost_s in zip(turns.step_s, lost, strict=True)
    ]
    return sum(clean) >= plan.num_rounds


def _turns(plan: TurnsPlan, rounds: list[dict[int, Trial]]) -> Turns:
    """The readings of all, a row a round."""
    rows = [[_turn_of(together[size]) for size in plan.sizes] for together in rounds]

    def told(field: str) -> tuple[tuple[Any, ...], ...]:
        """A value of each turn: the only one of its one round; nothing where one is not told."""
        values = [[getattr(turn, field) for turn in row] for row in rows]
        if not all(value for row in values for value in row):
            return ()
        return tuple(tuple(value[0][0] for value in row) for row in values)

    return Turns(
        sizes=plan.sizes, step_s=told("step_s"), lost_s=told("lost_s"), cpu_s=told("cpu_s")
    )


def _turn_of(trial: Trial) -> Turns:
    """What one turn showed; one that its deadline cut short has no row."""
    assert trial.turns is not None
    return trial.turns
