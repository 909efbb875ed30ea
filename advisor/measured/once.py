"""Functions of a record's measurements that are computed once for all who ask."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from .measurements import Measurements

Answer = TypeVar("Answer")


def once(function: Callable[[Measurements], Answer]) -> Callable[[Measurements], Answer]:
    """A function of measurements alone, which keep its answer; nobody changes that."""

    @wraps(function)
    def ask(measurements: Measurements) -> Answer:
        answers = measurements.answers
        if function not in answers:
            answers[function] = function(measurements)
        answer: Answer = answers[function]
        return answer

    return ask
