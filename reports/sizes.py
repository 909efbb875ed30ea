"""A size that was tried: what its trials say of it."""

from __future__ import annotations

from dataclasses import dataclass

from ..records import Counters, FlopRate, Profile, Spread, Tokens, Trial
from .words.outcomes import OUTCOMES


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeRow:
    """One size.

    Attributes:
        trial: the trial that speaks for it: confirmed before searched, timed before fit only,
            anything before a failure.
        failed_later: a failure of the same size after that trial.
        profile: of the latest trial of this size that has one.
        counters: of the latest trial of this size that has them.
        watts: mean power of the GPU in the trial's window.
        samples_per_joule: as the advice uses it, else of the trial.
        peak_bytes, step_s, samples_per_s: as the advice uses them, else of the trials.
        predicted_bytes: the peak that was expected before the size first ran; an estimate.
        tokens: of the trial that speaks for it, else of the latest that has them; `None` where
            batches are no sequences.
        padding_share: of the positions of an epoch, 0..1, where the advice estimates it; else of
            all that were counted at this size.
        padding_of_an_epoch: which of the two.
        real_tokens_per_s, positions_per_s: at the pace of `samples_per_s`.
        flops: as the advice has it.
    """

    trial: Trial
    failed_later: Trial | None
    profile: Profile | None
    counters: Counters | None
    watts: float | None
    samples_per_joule: float | None
    peak_bytes: int | None
    step_s: Spread | None
    samples_per_s: Spread | None
    marks: tuple[str, ...]
    unavailable: dict[str, str]
    predicted_bytes: int | None = None
    tokens: Tokens | None = None
    padding_share: float | None = None
    padding_of_an_epoch: bool = False
    real_tokens_per_s: Spread | None = None
    positions_per_s: Spread | None = None
    flops: FlopRate | None = None

    @property
    def padding_pct(self) -> float | None:
        """Share of the positions that hold padding."""
        return None if self.padding_share is None else 100 * self.padding_share

    @property
    def tflops_per_s(self) -> Spread | None:
        """Achieved by the model, 10^12 floating point operations per second."""
        return None if self.flops is None else self.flops.tflops_per_s

    @property
    def mfu_pct(self) -> float | None:
        """The share of the device's dense peak."""
        return None if self.flops is None else self.flops.mfu_pct

    @property
    def batch_size(self) -> int:
        """Samples per micro-batch."""
        return self.trial.batch_size

    @property
    def input_pct(self) -> float | None:
        """Share of the step spent waiting for the loader, unprofiled where that is known."""
        wait, step = self.trial.input_wait_s, self.trial.step_s
        if wait is not None and step is not None and step.median > 0:
            return min(100.0, 100 * wait.median / step.median)
        return self.profile.input_wait_pct if self.profile is not None else None

    def profiled(self, field: str) -> float | None:
        """A field of the profile."""
        value: float | None = None if self.profile is None else getattr(self.profile, field)
        return value


def outcome_words(row: SizeRow, *, short: bool) -> str:
    """How the size went."""
    trial = row.trial
    if not trial.ran:
        if trial.outcome == "ok":
            return f"{trial.arrived_batch_size or 'nothing'} arrived"
        return OUTCOMES[trial.outcome][short]
    words = "ok" if trial.kind != "fit" else "fit" if short else "fit only"
    if row.failed_later is None:
        return words
    return f"{words}, then {OUTCOMES[row.failed_later.outcome][short]}"
