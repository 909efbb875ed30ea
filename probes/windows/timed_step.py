"""One timed step on a device's own timeline, with what was counted meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ..process.messages import StepSample
from . import clean_steps
from .step_evidence import StepEvidence

if TYPE_CHECKING:
    from ..loader.token_meter import StepTokens


class Timeline(Protocol):
    """The part of a device that tells how long a step took."""

    def elapsed_s(self, start: Any, end: Any) -> float | None: ...


class Step:
    """One optimizer step between two fetches, or the mean of several that are alike.

    Args:
        start, end, wait_s, num_samples, micro_batches: of all of them.
        parts: how many they are.
        evidence: what was counted in each of them; `None` where nothing was read.
        tokens: of all of them; `None` where their batches show none.
    """

    __slots__ = (
        "elapsed_s",
        "end",
        "evidence",
        "micro_batches",
        "num_samples",
        "parts",
        "start",
        "tokens",
        "wait_s",
    )

    def __init__(
        self,
        start: Any,
        end: Any,
        wait_s: float,
        num_samples: int,
        micro_batches: int,
        *,
        parts: int = 1,
        evidence: StepEvidence | None = None,
        tokens: StepTokens | None = None,
    ) -> None:
        self.start = start
        self.end = end
        self.elapsed_s: float | None = None
        self.evidence = evidence
        self.tokens = tokens
        self.parts = parts
        self.wait_s = wait_s / parts
        self.num_samples = round(num_samples / parts)
        self.micro_batches = micro_batches // parts

    @property
    def timed(self) -> clean_steps.TimedStep:
        """What tells whether it was disturbed."""
        return clean_steps.TimedStep(self.elapsed_s or 0.0, self.evidence, self.wait_s)

    def elapsed_s_on(self, device: Timeline) -> float | None:
        """Its seconds; `None` while the device is not that far."""
        if self.elapsed_s is None:
            whole_s = device.elapsed_s(self.start, self.end)
            if whole_s is not None:
                self.elapsed_s = whole_s / self.parts
                self.start = self.end = None  # events of the device are freed
        return self.elapsed_s


def sampled(steps: list[Step], *, asynchronous: bool = False) -> tuple[StepSample, ...]:
    """Finished steps with their evidence, as `samples.jsonl` keeps them."""
    timed = [step.timed for step in steps]
    lost_s = clean_steps.judged(timed, asynchronous=asynchronous).lost_s
    return tuple(
        StepSample(
            step_s=seconds,
            input_wait_s=step.wait_s,
            num_samples=step.num_samples,
            lost_s=None if evidence is None else lost,
            **({} if evidence is None else evidence._asdict()),
        )
        for step, (seconds, evidence, _), lost in zip(steps, timed, lost_s, strict=True)
    )
