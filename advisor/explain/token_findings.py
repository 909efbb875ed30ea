"""Findings about the tokens of batches that are sequences, and what other batches would gain."""

from __future__ import annotations

from ...records import (
    BatchOrder,
    Evidence,
    Finding,
    OrderEstimates,
    Tokens,
)
from ..measured.batch_orders import order_estimates
from ..measured.measurements import Measurements
from ..measured.trials import undisturbed

HIGH_PADDING = 0.20
"""Share of padding from which on it is worth a word: a quarter more positions than tokens."""
PADS_LESS = 0.02
"""A share of padding that is smaller by less explains no difference."""
PAYS = 1.05
"""A predicted gain below this is not worth a change."""
WHAT: dict[BatchOrder, str] = {
    "random": "samples drawn at random",
    "grouped": "samples of like length in a batch",
    "token budget": "as many samples of like length as fill a budget of positions",
    "packed": "samples packed end to end",
}
GROUPED_CODE = """\
class GroupedByLength(torch.utils.data.Sampler):
    def __init__(self, lengths, batch_size):
        self.lengths, self.batch_size = lengths, batch_size
    def __len__(self):
        return -(-len(self.lengths) // self.batch_size)
    def __iter__(self):
        order = torch.randperm(len(self.lengths)).tolist()
        group = 50 * self.batch_size
        groups = [order[i:i + group] for i in range(0, len(order), group)]
        order = [i for each in groups for i in sorted(each, key=self.lengths.__getitem__)]
        size = self.batch_size
        batches = [order[i:i + size] for i in range(0, len(order), size)]
        yield from (batches[i] for i in torch.randperm(len(batches)).tolist())
# in place of batch_size= and shuffle=, with the length of each sample:
# DataLoader(dataset, batch_sampler=GroupedByLength(lengths, {size}), ...)"""
"""Code that groups samples by length in a loop of the user's own; a test applies it."""


def estimates_at(measurements: Measurements, batch_size: int) -> OrderEstimates | None:
    """Estimates other orders of the samples, where padding is high and a law of steps tells."""
    tokens = _tokens(measurements, batch_size)
    if tokens is None or not _is_high(measurements, batch_size, tokens):
        return None
    estimates = order_estimates(measurements, batch_size)
    return None if isinstance(estimates, str) else estimates


def padding(measurements: Measurements, batch_size: int) -> list[Finding]:
    """A large share of the positions holds padding, by a sign that proves it."""
    tokens = _tokens(measurements, batch_size)
    if tokens is None or not _is_high(measurements, batch_size, tokens):
        return []
    share = _padding(measurements, batch_size)
    assert share is not None
    label = "estimate for an epoch; " if batch_size in measurements.epoch_padding else ""
    estimates = estimates_at(measurements, batch_size)
    facts = [
        (
            f"{share:.0%} of the positions at {measurements.named(batch_size)} are padding "
            f"({label}{tokens.evidence}): for each real token a batch holds {1 / (1 - share):.2g} "
            "positions, and a model computes them all unless it leaves padding out"
        ),
        *_predicted(estimates),
    ]
    remedy = _remedy(measurements, estimates)
    return [
        Finding(
            rule="tokens.padding",
            severity="info",
            message="; ".join(facts),
            evidence=(
                Evidence(metric="share of padding", value=round(share, 3), threshold=HIGH_PADDING),
            ),
            remedy=remedy,
            code=_code(remedy, batch_size),
        )
    ]


def pads_less(measurements: Measurements, size: int, other: int | None) -> str:
    """Says that a size may be faster since it pads less than a larger one; else empty."""
    if other is None or size >= other or not measurements.rated_by_tokens:
        return ""
    mine, theirs = _padding(measurements, size), _padding(measurements, other)
    if mine is None or theirs is None or mine + PADS_LESS > theirs:
        return ""
    known = {size, other} <= measurements.epoch_padding.keys()
    return (
        f"A smaller batch is better here because it pads less: {mine:.0%} of its positions are "
        f"padding, at {other} {theirs:.0%} ({'estimate for an epoch' if known else 'as counted'})."
    )


def _padding(measurements: Measurements, size: int) -> float | None:
    """The share of an epoch, else of the batches that were counted at this size."""
    tokens = _tokens(measurements, size)
    counted = None if tokens is None else tokens.padding_share
    return None if counted is None else measurements.epoch_padding.get(size, counted)


def _is_high(measurements: Measurements, size: int, tokens: Tokens) -> bool:
    share = _padding(measurements, size)
    return not tokens.inferred and share is not None and HIGH_PADDING <= share < 1


def _predicted(estimates: OrderEstimates | None) -> list[str]:
    """Words the rate that the law of the steps predicts for each order, as an estimate."""
    if estimates is None:
        return []
    said = [
        f"{WHAT[each.order]} x{estimates.gain(each):.2f} ({each.padding_share:.0%} padding)"
        for each in estimates.orders[1:]
    ]
    return [
        (
            f"estimates by the law of {estimates.num_steps} timed steps, with as many positions "
            f"in a batch: {', '.join(said)}"
        )
    ]


def _remedy(measurements: Measurements, estimates: OrderEstimates | None) -> str:
    """The order that is predicted to pay the most, and the one that takes the fewest lines."""
    if estimates is None:
        return ""
    paying = [each for each in estimates.orders[1:] if estimates.gain(each) >= PAYS]
    orders = [max(paying, key=estimates.gain).order] if paying else []
    if any(each.order == "grouped" for each in paying) and "grouped" not in orders:
        orders.append("grouped")
    ways = [_how(measurements, order) for order in orders]
    return f"predicted, not tried: {'; or '.join(ways)}" if ways else ""


def _how(measurements: Measurements, order: BatchOrder) -> str:
    """The lines to change, by what the script was seen to use."""
    discovery = measurements.record.discovery
    options = {} if discovery is None else dict(discovery.order_options)
    if order in options:
        return f"{WHAT[order]}: {options[order]}"
    if order == "grouped":
        return f"{WHAT[order]}, by a batch sampler"
    if order == "packed":
        return (
            f"{WHAT[order]}, by a collate function that keeps sequences apart by their position "
            "ids (DataCollatorWithFlattening of transformers; packing=True of TRL's SFTConfig)"
        )
    return (
        f"{WHAT[order]}, by a batch sampler that cuts where rows x the longest would pass the "
        "budget (docs/budgets.md)"
    )


def _code(remedy: str, batch_size: int) -> tuple[str, ...]:
    """The lines of the batch sampler, where the remedy is one for a loop of the user's own."""
    if not remedy.endswith(f"{WHAT['grouped']}, by a batch sampler"):
        return ()
    return tuple(GROUPED_CODE.replace("{size}", str(batch_size)).splitlines())


def _tokens(measurements: Measurements, batch_size: int) -> Tokens | None:
    """The tokens of the trial of this size that counted the most batches, best undisturbed."""
    trials = [
        trial
        for trial in measurements.timed
        if trial.batch_size == batch_size and trial.tokens is not None
    ]
    counted = [trial.tokens for trial in undisturbed(trials) if trial.tokens is not None]
    return max(counted, key=lambda tokens: tokens.num_batches, default=None)
