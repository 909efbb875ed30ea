"""Findings about the tokens of batches that are sequences."""

from __future__ import annotations

from ...records import Evidence, Finding, Tokens
from ..measured.measurements import Measurements
from ..measured.trials import undisturbed

HIGH_PADDING = 0.20
"""Share of padding from which on it is worth a word: a quarter more positions than tokens."""


def padding(measurements: Measurements, batch_size: int) -> list[Finding]:
    """A large share of the positions holds padding, by a sign that proves it."""
    tokens = _tokens(measurements, batch_size)
    if tokens is None or tokens.inferred or tokens.padding_share is None:
        return []
    share = tokens.padding_share
    if not HIGH_PADDING <= share < 1:
        return []
    return [
        Finding(
            rule="tokens.padding",
            severity="info",
            message=f"{share:.0%} of the positions at {measurements.named(batch_size)} are padding "
            f"({tokens.evidence}): for each real token a batch holds {1 / (1 - share):.2g} "
            "positions, and a model computes them all unless it leaves padding out",
            evidence=(
                Evidence(metric="share of padding", value=round(share, 3), threshold=HIGH_PADDING),
            ),
            remedy="usual remedy, not tried here: put samples of like length into a batch (a batch "
            "sampler with buckets; in Hugging Face's Trainer, grouping by length), or pack them.",
        )
    ]


def _tokens(measurements: Measurements, batch_size: int) -> Tokens | None:
    """Of the trial of this size that counted the most batches, undisturbed ones first."""
    trials = [
        trial
        for trial in measurements.timed
        if trial.batch_size == batch_size and trial.tokens is not None
    ]
    counted = [trial.tokens for trial in undisturbed(trials) if trial.tokens is not None]
    return max(counted, key=lambda tokens: tokens.num_batches, default=None)
