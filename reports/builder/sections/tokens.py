"""What batches of sequences hold, in words."""

from __future__ import annotations

from collections.abc import Sequence

from ....records import LoaderInfo, Tokens
from ...sizes import SizeRow
from ...words.wording import percent

DECIDE = (
    "Real {unit} per second decide; times and samples are those of an epoch's mean batch and "
    "sample, whatever the few batches of a trial held."
)
REASONS = {
    "real_per_s": "real_tokens_per_s",
    "positions_per_s": "positions_per_s",
    "padding_share": "padding_pct",
}
"""Field of the tokens' record to the report's field of a size."""


def token_facts(
    rows: Sequence[SizeRow], loader: LoaderInfo | None = None, *, by_tokens: bool = False
) -> list[tuple[str, str]]:
    """A line about the tokens at the recommended size, else at the largest that has some.

    Args:
        loader: whose sizes these are.
        by_tokens: sizes were compared by real tokens per second.
    """
    counted = [row for row in rows if row.tokens is not None and row.trial.ran]
    if not counted:
        return []
    row = next((row for row in counted if "recommended" in row.marks), counted[-1])
    assert row.tokens is not None
    label = "Tokens" if row.tokens.unit == "tokens" else "Time steps"
    text = _text(row, row.tokens, loader)
    return [(label, f"{text} {DECIDE.format(unit=row.tokens.unit)}" if by_tokens else text)]


def token_reasons(tokens: Tokens | None) -> dict[str, str]:
    """Why fields of a size are `None`."""
    reasons = {} if tokens is None else tokens.unavailable
    return {REASONS[field]: reason for field, reason in reasons.items() if field in REASONS}


def _text(row: SizeRow, tokens: Tokens, loader: LoaderInfo | None) -> str:
    trial = row.trial
    samples = trial.batch_size * (trial.micro_batches or 1) * trial.arrived_share
    whole = tokens.positions_per_step
    per_sample = (tokens.per_step or 0.0) / samples if whole is None else whole / samples
    at = f"batch {trial.batch_size}" if loader is None else loader.named(trial.batch_size)
    parts = [f"{_few_digits(per_sample)} {tokens.unit} a sample at {at}"]
    if tokens.padding_share is None:
        reason = tokens.unavailable.get("padding_share", "nothing tells it")
        parts.append(f"; padding not known: {reason}")
    elif not tokens.padding_share:
        parts.append(f", none of them padding ({tokens.evidence})")
    else:
        by = f"{tokens.evidence}, no proof" if tokens.inferred else tokens.evidence
        padding = tokens.padding_share if row.padding_share is None else row.padding_share
        over = " over an epoch (estimate; " if row.padding_of_an_epoch else " ("
        parts.append(f", {percent(100 * padding)}% of them padding{over}{by})")
    lengths = tokens.lengths
    if lengths is not None and lengths.shortest < lengths.longest:
        parts.append(
            f"; sequences of {lengths.shortest} to {lengths.longest}, half of them above "
            f"{lengths.median:.4g}"
        )
    if tokens.trained_per_step is not None and whole:
        share = percent(100 * tokens.trained_per_step / whole)
        parts.append(f"; {share}% of all positions have a label that counts")
    return "".join(parts) + "."


def _few_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"
