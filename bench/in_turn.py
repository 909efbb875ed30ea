"""Steps per second of trainings that live at once and run in turn.

A machine that others use as well is slower by a fifth for seconds. Trainings that run one after the
other meet it at different times, and their ratios are off by as much. So all are started, and then
stopped and continued (SIGSTOP, SIGCONT), each with its workers, for a slice of time in each round.
What a round lost or gained, all of it did.
"""

from __future__ import annotations

import math
import os
import random
import signal
import statistics
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from stamped import read_stamps

SLICE_S = 0.5
SETTLING_S = 0.05
"""The begin of a slice in which caches are filled again: a step that ended there is not counted."""
LATEST_S = 10.0
"""A slice is as long as it needs for two steps, up to this."""
START_LIMIT_S = 90.0


class Training(NamedTuple):
    """A process that leads a group, and notes its steps.

    Attributes:
        stamps: file of the moments at which its steps ended; see `stamped.py`.
        at_once: workers that deliver together: whole rounds of theirs are counted. Between the
            same points of two rounds lies as much work as time; from the first of a burst to the
            last of another lies one too much.
    """

    process: subprocess.Popen[bytes]
    stamps: Path
    at_once: int = 1

    def send(self, number: signal.Signals) -> bool:
        """Signals the group; whether the process lives."""
        if self.process.poll() is not None:
            return False
        os.killpg(self.process.pid, number)
        return True

    def run(self, seconds: float) -> float | None:
        """Goes on for a slice; steps per second, `None` where too few ended."""
        begun_s = time.perf_counter()
        inside: list[float] = []
        if not self.send(signal.SIGCONT):
            return None
        while True:
            time.sleep(seconds if not inside else 0.02)
            now_s = time.perf_counter()
            noted = read_stamps(self.stamps)
            inside = [moment for moment in noted if moment > begun_s + SETTLING_S]
            if len(inside) > self.at_once or now_s > begun_s + LATEST_S:
                break
            inside = inside or [now_s]  # from here on it is asked often
        self.send(signal.SIGSTOP)
        steps = (len(inside) - 1) // self.at_once * self.at_once
        return steps / (inside[steps] - inside[0]) if steps > 0 else None


def steps_per_s(
    trainings: dict[int, Training], start_s: float, seconds: float
) -> dict[int, float | None]:
    """Steps per second of each, with what the rounds did to all of them taken out.

    Args:
        trainings: that were just started.
        start_s: each has run for so long after its first step when the rounds begin.
        seconds: of each in turn, in all.
    """
    _begin(trainings, start_s)
    order = list(trainings)
    rounds: list[dict[int, float]] = []
    for number in range(math.ceil(seconds / SLICE_S)):
        random.Random(number).shuffle(order)
        told = {each: trainings[each].run(SLICE_S) for each in order}
        rounds.append({each: math.log(rate) for each, rate in told.items() if rate})
    return levelled(rounds, list(trainings))


def levelled(rounds: list[dict[int, float]], names: list[int]) -> dict[int, float | None]:
    """The rate of each from logs of its rates by round: medians, once rounds are on one level.

    >>> levelled([{1: 0.0, 2: 1.0}, {1: 0.5, 2: 1.5}, {1: 9.0, 2: 10.0}], [1, 2, 3])
    {1: 23.8..., 2: 64.8..., 3: None}
    """
    in_all = [name for name in names if rounds and all(name in each for each in rounds)]
    levels = [statistics.fmean(each[name] for name in in_all) if in_all else 0.0 for each in rounds]
    whole = statistics.fmean(levels) if levels else 0.0
    rates: dict[int, float | None] = {}
    for name in names:
        own = [
            each[name] - level for each, level in zip(rounds, levels, strict=True) if name in each
        ]
        rates[name] = math.exp(statistics.median(own) + whole) if own else None
    return rates


def _begin(trainings: dict[int, Training], start_s: float) -> None:
    """Lets each come to train and run for a while, then stops it."""
    waiting = set(trainings)
    latest_s = time.perf_counter() + START_LIMIT_S
    while waiting and time.perf_counter() < latest_s:
        time.sleep(0.05)
        for name in sorted(waiting):
            each = trainings[name]
            noted = read_stamps(each.stamps)
            warm = len(noted) > 2 and time.perf_counter() - noted[0] > start_s
            if warm or each.process.poll() is not None:
                each.send(signal.SIGSTOP)
                waiting.discard(name)
    for name in waiting:
        trainings[name].send(signal.SIGSTOP)
