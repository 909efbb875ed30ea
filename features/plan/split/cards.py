"""A type of GPU in a plan: what a record says that one of them does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import ceil

from ....advisor.measured.distribution import epoch_samples, scaling_of
from ....advisor.measured.energy import samples_per_joule
from ....advisor.measured.measurements import Measurements
from ....advisor.split.step_times import Member, member_of
from ....records import Advice, Choice, DeviceRun, RunRecord, Trial
from ..records import PlanCard

NO_PRICE = "no --price for it"
NO_TOKENS = "its batches are not known to be sequences"


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """A record of a type, with the name that the plan gives it."""

    name: str
    folder: str
    record: RunRecord
    advice: Advice
    count: int = 0
    price: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A type of GPU.

    Attributes:
        folder: of its record.
        choice: what its record recommends.
        steps: its step times at every number of samples, alone.
        power_w: by size, where it was measured.
        tokens_per_sample: real tokens, `None` where they are not known.
        price: for one GPU an hour.
    """

    name: str
    folder: str
    record: RunRecord
    choice: Choice | None = None
    member: Member
    steps: Accumulating
    count: int = 0
    price: float | None = None
    power_w: Mapping[int, float] = field(default_factory=dict)
    tokens_per_sample: float | None = None

    @property
    def rate(self) -> float:
        """Samples per second of one of them alone, at its recommended size."""
        return self.member.recommended / self.steps.step_s(self.member.recommended)

    def watts_at(self, batch_size: int) -> float | None:
        """Power at the measured size nearest to one."""
        if not self.power_w:
            return None
        nearest = min(self.power_w, key=lambda size: (abs(size - batch_size), size))
        return self.power_w[nearest]


def card_of(probed: Probed, multiple_of: int = 1) -> Card | str:
    """A record's device as a type of GPU, or the reason why it cannot be one.

    Args:
        multiple_of: what each micro-batch has to be a multiple of.
    """
    record, advice = probed.record, probed.advice
    model = record.device.name if record.device is not None else probed.name
    run = DeviceRun(device=probed.name, model=model, folder=probed.folder)
    member = member_of(run, (record, advice))
    if isinstance(member, str):
        return member or "nothing in its record can be recommended"
    off_s, factor = _of_ranks(record, member.recommended)

    def micro_s(size: int) -> float:
        return max(member.step_s(size) - off_s, 1e-9) / factor

    timed = {
        trial.batch_size: trial
        for trial in Measurements.of(record, advice.goal).best_timed.values()
    }
    return Card(
        name=probed.name,
        folder=probed.folder,
        record=record,
        choice=advice.recommended,
        member=member,
        steps=Accumulating(micro_s, member.largest, multiple_of),
        count=probed.count,
        price=probed.price,
        power_w={
            size: power
            for size, trial in timed.items()
            if samples_per_joule(trial) is not None
            and trial.counters is not None
            and (power := trial.counters.mean_w)
        },
        tokens_per_sample=_tokens_per_sample(timed, member.recommended),
    )


def _of_ranks(record: RunRecord, batch_size: int) -> tuple[float, float]:
    """Seconds that several ranks add to each step (Tsync), and their factor on the rest of it."""
    scaling = scaling_of(record, batch_size)
    if scaling is None:
        return 0.0, 1.0
    alone = scaling.alone_s
    factor = scaling.compute_s.median / alone.median if alone is not None and alone.median else 1.0
    return max(0.0, scaling.sync_s.median), factor


def _tokens_per_sample(timed: Mapping[int, Trial], batch_size: int) -> float | None:
    """Real tokens of a sample, at the size that is nearest."""
    known = {
        size: trial.tokens.real_per_step / (size * (trial.micro_batches or 1))
        for size, trial in timed.items()
        if trial.tokens is not None and trial.tokens.real_per_step
    }
    if not known:
        return None
    return known[min(known, key=lambda size: (abs(size - batch_size), size))]


def num_samples_of(cards: list[Card]) -> int | None:
    """Samples of an epoch: the least that a record knows of."""
    counts = []
    for card in cards:
        discovery, ranks = card.record.discovery, card.record.distribution
        if discovery is None:
            continue
        known = (
            discovery.primary.num_samples
            if ranks is None or ranks.world_size < 2
            else epoch_samples(discovery, ranks.world_size)[0]
        )
        if known is not None:
            counts.append(known)
    return min(counts, default=None)


def recommended_of(card: Card, least: int) -> int:
    """The recommended size of a type, or the multiple of `least` below it."""
    return max(least, card.member.recommended // least * least)


def plan_card(card: Card, num_samples: int | None) -> PlanCard:
    """Describes one GPU of a type alone, at its recommended size."""
    unavailable = {}
    member, record, choice = card.member, card.record, card.choice
    several = record.distribution is not None and record.distribution.world_size > 1
    rate = choice.samples_per_s if choice is not None and not several else None
    if rate is None:
        unavailable["samples_per_s"] = "it was measured as one of several ranks"
    speed = rate.median if rate is not None else card.rate
    tokens = None if card.tokens_per_sample is None else speed * card.tokens_per_sample
    if tokens is None:
        unavailable["tokens_per_s"] = NO_TOKENS
    joules = choice.samples_per_joule if choice is not None else None
    if joules is None:
        unavailable["samples_per_joule"] = "no energy was measured"
    if card.price is None:
        unavailable["samples_per_price"] = NO_PRICE
    per_price = None if not card.price else 3600 / card.price
    if num_samples is None:
        unavailable["epoch_s"] = "the length of an epoch is not known"
    return PlanCard(
        name=card.name,
        device=record.device.name if record.device is not None else "",
        record=card.folder,
        count=card.count,
        recommended=member.recommended,
        samples_per_s=rate,
        tokens_per_s=tokens,
        epoch_s=None
        if num_samples is None
        else ceil(num_samples / member.recommended) * member.recommended / speed,
        largest=member.largest,
        largest_ran=member.largest_ran,
        largest_source=member.largest_source,
        time_source=member.time_source,
        samples_per_joule=joules,
        tokens_per_joule=None
        if joules is None or card.tokens_per_sample is None
        else joules * card.tokens_per_sample,
        price=card.price,
        samples_per_price=None if per_price is None else speed * per_price,
        tokens_per_price=None if per_price is None or tokens is None else tokens * per_price,
        unavailable=unavailable,
    )


# Step times above the largest micro-batch that fits: several micro-batches in one step.


@dataclass(frozen=True, slots=True)
class Accumulating:
    """A GPU that accumulates where its part of a step does not fit at once.

    Each micro-batch is counted as a whole step, the optimizer's part with it: a little too long.

    Attributes:
        micro_s: seconds of a step of one micro-batch by its size; never falls.
        largest: samples of the largest micro-batch.
        multiple_of: what each micro-batch is a multiple of.
    """

    micro_s: Callable[[int], float]
    largest: int
    multiple_of: int = 1

    @property
    def _most(self) -> int:
        return max(self.largest // self.multiple_of, 1) * self.multiple_of

    def micro_batches(self, size: int) -> int:
        """How many micro-batches a step of that many samples needs."""
        return max(1, -(-size // self._most))

    def micro_size(self, size: int) -> int:
        """Samples of the largest micro-batch of such a step."""
        parts = self.micro_batches(size)
        if parts == 1:
            return size
        return -(-size // (parts * self.multiple_of)) * self.multiple_of

    def step_s(self, size: int) -> float:
        """Seconds of a step of that many samples; never falls.

        Where smaller micro-batches are quicker in proportion, two of them may take less than a
        full one; the full one's time is said then, so that more samples never take less.

        >>> Accumulating(lambda b: 12 + 0.5 * b, 100).step_s(150)
        99.0
        """
        parts = self.micro_batches(size)
        if parts == 1:
            return self.micro_s(size)
        before = (parts - 1) * self.micro_s(self._most)
        return max(before, parts * self.micro_s(self.micro_size(size)))
