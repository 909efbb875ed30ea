"""The law of memory from steps on fake tensors, and how the first real peaks correct it.

Tensors are not all that a process takes. What a reading has beyond them is there at any size, or it
grows with them: readings = offset + ratio x law, and two of them tell both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from ...records import PriorLaw
from .measurements import Measurements
from .once import once
from .step_law import StepLaw, law_of

# Over 500 random laws, such a search makes at most 0.1 refusals and 3.5 trials on average
# (tests/advisor/test_memory_prior.py).
GROWTH_DOUBT = 0.10
"""Memory may grow faster than the law says by this share, beyond what the first reading shows."""
AIM = 0.97
"""Share of what is left up to the target that the first step by the law shall fill."""
REFUSED_SHARE = 0.7
"""Share of the room between the first reading and a refused size that a step may fill."""
CARE = 0.75
"""Share of the room up to the target that a size may fill before any size was tried."""
EXPLAINED = 1 / 3
"""With a smaller share of tensors in what the first reading has beyond the usual, the law sets no
pace, only a bound."""
LEAST_RATIO, LARGEST_RATIO = 0.5, 2.0
"""Bytes a sample that were read, over those of the law; outside, the law is not of this step."""
UNREAD = 0.1
"""A reading below this share of the least that the law allows is none of the step's memory."""
LEAST_LAW_GAP = 0.1
"""Two readings correct the slope if the law differs between them by this share of the larger."""


class Kind(NamedTuple):
    """Memory that readings of a kind of device have beside tensors.

    Attributes:
        least_ratio, most_ratio: bytes that a reading is taken to grow for a byte of tensors.
        beside_bytes: as much is there at any size.
    """

    least_ratio: float
    most_ratio: float
    beside_bytes: int


RESIDENT = Kind(1.4, 2.0, 600 << 20)
"""Resident memory: the heap of the C library keeps pieces, and torch's own code is in it."""
RESERVED = Kind(1.0, 1.5, 64 << 20)
"""Reserved memory: pieces that lie between tensors, and workspaces of libraries."""


class Prior(msgspec.Struct, frozen=True):
    """The law, and how readings are taken to follow it."""

    law: StepLaw
    kind: Kind = RESERVED

    def agrees(self, slope: float) -> bool:
        """Whether a slope that was read is one that the law can stand for."""
        return LEAST_RATIO <= slope / self.law.sample_bytes <= LARGEST_RATIO

    def stands(self, size: int, peak: int, target_bytes: int) -> bool:
        """Whether a size may have run, and have been read so, if the law holds."""
        least = LEAST_RATIO * self.law.peak_bytes(size)
        return least <= target_bytes and (peak >= least or peak < UNREAD * least)

    def next_size(
        self, size: int, peak: int, target_bytes: int, refused: int | None = None
    ) -> float:
        """The size after the first reading.

        Args:
            size, peak: that was read.
            target_bytes: what a size may take.
            refused: a larger size that failed: memory grows faster than the law says.
        """
        before = self.law.peak_bytes(size)
        peak = self._credible(size, peak)
        kind = self.kind
        seen = (peak - kind.beside_bytes) / before
        ratio = min(max(kind.least_ratio, seen), kind.most_ratio) * (1 + GROWTH_DOUBT)
        room = AIM * (target_bytes - peak) / ratio
        if refused is not None:
            room = min(room, REFUSED_SHARE * (self.law.peak_bytes(refused) - before))
        return float(self.law.largest_batch(before + room))

    def most(self, size: int, peak: int, target_bytes: int) -> float:
        """A size beyond which memory ends even if it grows as slowly as it may; see `agrees`."""
        room = (target_bytes - self._credible(size, peak)) / LEAST_RATIO
        return float(self.law.largest_batch(self.law.peak_bytes(size) + room))

    def explains(self, size: int, peak: int) -> bool:
        """Whether enough of a reading are tensors."""
        return self.law.peak_bytes(size) >= EXPLAINED * (peak - self.kind.beside_bytes)

    def first_size(self, target_bytes: int) -> int:
        """A size that should fit where nothing was read yet, at least 1."""
        room = (target_bytes - self.kind.beside_bytes) / self.kind.least_ratio
        return max(1, self.law.largest_batch(CARE * room / (1 + GROWTH_DOUBT)))

    def _credible(self, size: int, peak: int) -> int:
        """A reading; the law's where far less was read than tensors take, as nothing was then."""
        least = self.law.peak_bytes(size)
        return peak if peak >= LEAST_RATIO * least else int(least)


class Correction(msgspec.Struct, frozen=True):
    """The law of memory corrected by real peaks: these are offset_bytes + ratio x law.

    Attributes:
        sizes: whose peaks it follows from; with one, the ratio is 1.
        residual: the largest relative miss of a real peak; `None` with fewer than three.
    """

    law: StepLaw
    offset_bytes: float = 0.0
    ratio: float = 1.0
    sizes: tuple[int, ...] = ()
    residual: float | None = None

    def peak_bytes(self, batch: int) -> int:
        """The corrected peak of a size."""
        return max(0, int(self.offset_bytes + self.ratio * self.law.peak_bytes(batch)))

    def largest_batch(self, capacity_bytes: float) -> int:
        """The most samples whose corrected peak fits; 0 if not even 1 does."""
        return self.law.largest_batch((capacity_bytes - self.offset_bytes) / self.ratio)


def corrected(law: StepLaw, peaks: Mapping[int, int]) -> Correction:
    """The law as real peaks correct it.

    Args:
        peaks: that were read, by size.
    """
    if not peaks:
        return Correction(law)
    last = max(peaks)
    apart = [
        size
        for size in sorted(peaks)
        if law.peak_bytes(last) - law.peak_bytes(size) >= LEAST_LAW_GAP * law.peak_bytes(last)
    ]
    ratio = 1.0
    if apart:
        growth = law.peak_bytes(last) - law.peak_bytes(apart[0])
        slope = (peaks[last] - peaks[apart[0]]) / growth
        ratio = slope if LEAST_RATIO <= slope <= LARGEST_RATIO else 1.0
    offset = peaks[last] - ratio * law.peak_bytes(last)
    answer = Correction(law, offset, ratio, tuple(dict.fromkeys([*apart[:1], last])))
    if len(peaks) < 3:
        return answer
    misses = [abs(answer.peak_bytes(size) - peak) / peak for size, peak in peaks.items()]
    return msgspec.structs.replace(answer, residual=max(misses))


@once
def prior_law(measurements: Measurements) -> StepLaw | str:
    """The law of the record's steps on fake tensors, or why there is none."""
    prior = measurements.record.prior
    if prior is None:
        return "no steps were made on fake tensors"
    return prior.reason or law_of(prior.peaks, prior.floor_bytes, prior.passes)


@once
def prior_of(measurements: Measurements) -> Prior | None:
    """The law for the search; `None` where there is none."""
    law, device = prior_law(measurements), measurements.record.device
    if isinstance(law, str) or device is None:
        return None
    return Prior(law, RESIDENT if device.kind == "cpu" else RESERVED)


@once
def correction_of(measurements: Measurements) -> Correction | None:
    """The law with all real peaks of the record; `None` where there is no law."""
    law = prior_law(measurements)
    if isinstance(law, str):
        return None
    memory = measurements.trusted_memory
    return corrected(law, {size: reading.peak_bytes for size, reading in memory.items()})


def predicted_bytes(measurements: Measurements, size: int) -> int | None:
    """The peak that a size is expected to have, by all that the record says so far."""
    correction = correction_of(measurements)
    return None if correction is None else correction.peak_bytes(size)


def stated(measurements: Measurements) -> PriorLaw | str | None:
    """The corrected law for the answer, or why there is none; `None` where nobody asked for one."""
    prior, target = measurements.record.prior, measurements.target_bytes
    if prior is None or target is None:
        return None
    law, correction = prior_law(measurements), correction_of(measurements)
    if isinstance(law, str) or correction is None:
        return str(law)
    return PriorLaw(
        kind=prior.kind,
        floor_bytes=law.floor_bytes,
        fixed_bytes=law.fixed_bytes,
        sample_bytes=law.sample_bytes,
        sizes=tuple(sorted(prior.peaks)),
        offset_bytes=correction.offset_bytes,
        ratio=correction.ratio,
        corrected_by=correction.sizes,
        residual=correction.residual,
        target_bytes=target,
        largest_estimate=correction.largest_batch(target),
    )
