"""The chance that a size runs out of memory at an epoch's lengths: its law and its lengths."""

from __future__ import annotations

from typing import NamedTuple

from ...records import EpochRisk, LengthCensus, LengthLaw, LoaderInfo, MemoryRisk, RunRecord
from .epoch_chance import Epoch, chance, worst_peak
from .length_law import fit_lengths, points_of

MAX_CHANCE = 0.01
"""A size that runs out of memory in more than so many epochs is not recommended."""
PACKED = ("position ids", "cu_seqlens", "packed sequence", "nested tensor")
"""Evidence that batches hold their samples one after the other, without padding."""


class LengthRisk(NamedTuple):
    """The law and the lengths, from which the chance of any size follows."""

    law: LengthLaw
    census: LengthCensus
    capacity_bytes: int
    epoch: Epoch

    def chance(self, size: int) -> float:
        """The chance that an epoch of this size runs out of memory, 0..1."""
        return chance(self.law, self.census, size, self.capacity_bytes, self.epoch)

    def at(self, size: int) -> EpochRisk:
        """The risk of one size."""
        longest = self.census.lengths[-1]
        peak = worst_peak(self.law, size, longest, by_budget=self.epoch.by_budget)
        return EpochRisk(batch_size=size, chance=self.chance(size), peak_bytes=peak)


def risk_of(record: RunRecord) -> LengthRisk | str:
    """The risk, or why it is not known; empty where nothing was asked of the lengths."""
    asked = [trial for trial in record.trials if trial.purpose == "lengths"]
    if not asked or record.discovery is None or record.device is None:
        return ""
    law = fit_lengths(points_of(record.trials))
    if isinstance(law, str):
        return law
    if not any(trial.ran and trial.chosen_length == "longest" for trial in asked):
        return "no window with the longest samples ran"
    censuses = [
        trial.inputs.census
        for trial in asked
        if trial.inputs is not None and trial.inputs.census is not None
    ]
    if not censuses:
        return "the lengths of the samples are not known"
    census = max(censuses, key=lambda census: census.num_samples)
    epoch = _epoch(record, record.discovery.primary, census)
    return LengthRisk(law, census, record.device.capacity_bytes, epoch)


def packed(record: RunRecord) -> bool:
    """Whether batches hold their samples end to end: no batch is as long as its longest one."""
    tokens = [trial.tokens for trial in record.trials if trial.tokens is not None]
    return bool(tokens) and all(each.evidence in PACKED for each in tokens)


def _epoch(record: RunRecord, loader: LoaderInfo, census: LengthCensus) -> Epoch:
    return Epoch(
        num_samples=loader.num_samples or census.num_samples,
        drop_last=loader.drop_last,
        replaced=loader.iterable or "Weighted" in loader.sampler,
        summed=packed(record),
        by_budget=loader.axis != "samples",
    )


def risk_record(risk: LengthRisk, sizes: list[int]) -> MemoryRisk:
    """The risk of these sizes, as the advice keeps it."""
    census, epoch = risk.census, risk.epoch
    known = census.complete and epoch.num_samples >= census.num_samples
    if known:
        basis = f"the lengths of all {census.num_samples} samples"
    else:
        basis = (
            f"the lengths of {census.num_samples} samples; longer ones are expected as the tail of "
            "these has them"
        )
    return MemoryRisk(
        law=risk.law,
        capacity_bytes=risk.capacity_bytes,
        risks=tuple(risk.at(size) for size in sorted(sizes)),
        longest=census.lengths[-1],
        num_samples=epoch.num_samples,
        basis=basis,
        confidence="measured" if known and not epoch.replaced else "estimate",
    )
