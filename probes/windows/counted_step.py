"""The step after the timed ones whose floating point operations are counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import msgspec

from ...records import StepFlops

if TYPE_CHECKING:
    from ..loader.token_meter import StepTokens

UNLIKE = "the steps that were counted had other batches than most"
MOST_TRIES = 3
"""Steps that are counted at most, where one has other batches than most: the last of an epoch."""


class FlopCounter(Protocol):
    """Counts the operations of a step; see step_flops.py."""

    def start(self) -> None: ...
    def forget(self) -> None: ...
    def finish(self) -> StepFlops | str: ...
    def abandon(self) -> None: ...


class CountedStep:
    """One step, from its begin to its end.

    Args:
        make: the counter, or why none can count; `None` leaves the step out.

    Attributes:
        flops: what was counted, `None` so far or where it could not be.
        why_not: why it could not be.
    """

    def __init__(self, make: Callable[[], FlopCounter] | str | None) -> None:
        self._make = None if isinstance(make, str) else make
        self._counter: FlopCounter | None = None
        self._num_tries = 0
        self.flops: StepFlops | None = None
        self.why_not = make if isinstance(make, str) else ""

    @property
    def is_wanted(self) -> bool:
        """Whether a step is to be counted."""
        return self._make is not None

    def leave_out(self, reason: str) -> None:
        """No step is counted."""
        self.why_not = reason

    def begin(self) -> None:
        """The step begins."""
        assert self._make is not None
        self.why_not = ""
        try:
            self._counter = self._make()
            self._counter.start()
        except Exception as error:  # noqa: BLE001  what cannot be counted never fails a trial
            self._drop(error)

    def arrived(self) -> None:
        """The first batch of the step arrived; what came before was its loader's work."""
        if self._counter is not None:
            self._counter.forget()

    def end(self, parts: int, tokens: StepTokens | None) -> None:
        """The step is over.

        Args:
            parts: equal optimizer steps that it was.
            tokens: of its batches.
        """
        counter, self._counter = self._counter, None
        if counter is None:
            return
        try:
            counted = counter.finish()
        except Exception as error:  # noqa: BLE001
            self._drop(error)
            return
        if isinstance(counted, str):
            self.why_not = counted
            return
        self.flops = msgspec.structs.replace(
            counted,
            forward=counted.forward // parts,
            backward=counted.backward // parts,
            recomputed=counted.recomputed // parts,
            products=counted.products // parts,
            convolutions=_each(counted.convolutions, parts),
            by_dtype={name: flops // parts for name, flops in counted.by_dtype.items()},
            positions=_each(None if tokens is None else tokens.positions, parts),
            squares=_each(None if tokens is None else tokens.squares, parts),
        )

    def again(self) -> bool:
        """The step that was counted is not one of most. True where another one is to be."""
        if self.flops is None:
            return False
        self.flops, self.why_not = None, UNLIKE
        self._num_tries += 1
        return self._num_tries < MOST_TRIES

    def abandon(self) -> None:
        """The trial is over some other way."""
        if self._counter is not None:
            self._counter.abandon()
            self._counter = None

    def _drop(self, error: Exception) -> None:
        self.abandon()
        self.why_not = f"the counter failed: {type(error).__name__}: {error}"


def _each(total: int | None, parts: int) -> int | None:
    return None if total is None else total // parts
