"""The split over devices of a few types: exact under every constraint, and quick."""

import itertools
import random

import pytest
from batchadvisor.advisor.split.allocation import allocate
from batchadvisor.features.plan.records import Link
from batchadvisor.features.plan.split.cards import Accumulating, Card, card_of
from batchadvisor.features.plan.split.cluster_options import best_types, equal_sizes, option_of
from batchadvisor.features.plan.split.links import Job
from batchadvisor.features.plan.split.type_allocation import DeviceType, allocate_types, slowest_s

from ..plans import probed


def line(fixed, slope):
    return lambda size: fixed + slope * size


def random_step(chance):
    """A law, a law with accumulation above a cap, or a staircase with flat parts."""
    kind = chance.randrange(3)
    fixed, slope = chance.uniform(0, 20), chance.uniform(0.1, 4)
    if kind == 0:
        return line(fixed, slope)
    if kind == 1:
        return Accumulating(line(fixed, slope), chance.randint(1, 9)).step_s
    width = chance.randint(1, 5)
    return lambda size: fixed + slope * (size // width)


def every_split(types, total, portion, smallest):
    """All ways to give a multiple of the portion to each single device, within its cap."""
    devices = [kind for kind in types for _ in range(kind.count)]
    ranges = [range(smallest, kind.cap + 1, portion) for kind in devices]
    for split in itertools.product(*ranges):
        if sum(split) == total:
            yield max(
                (kind.step_s(size) for kind, size in zip(devices, split, strict=True)), default=0.0
            )


def test_against_every_other_split():
    """4,000 random cases: caps, accumulation, granularity, a smallest share, several of a type."""
    chance = random.Random(11)
    held = 0
    for _ in range(4000):
        portion = chance.choice([1, 1, 2, 4])
        types = [
            DeviceType(
                count=chance.randint(1, 2), step_s=random_step(chance), cap=chance.randint(0, 12)
            )
            for _ in range(chance.randint(1, 2))
        ]
        smallest = chance.choice([0, portion])
        total = portion * chance.randint(1, 16 // portion)
        sizes = allocate_types(total, types, granularity=portion, smallest=smallest)
        slowest = list(every_split(types, total, portion, smallest))
        if not slowest:
            assert sizes is None
            continue
        held += 1
        pairs = [pair for of_type in sizes for pair in of_type]
        assert sum(size * number for size, number in pairs) == total
        for kind, of_type in zip(types, sizes, strict=True):
            assert sum(number for _, number in of_type) == kind.count
            assert all(smallest <= size <= kind.cap for size, _ in of_type)
            assert all(size % portion == 0 for size, _ in of_type)
            assert of_type[0][0] - of_type[-1][0] in (0, portion)
        assert slowest_s(types, sizes) == pytest.approx(min(slowest), rel=1e-12)
    assert held > 2000


def test_it_is_the_split_over_single_devices():
    """As `allocate` over every device by itself, for larger numbers than brute force can do."""
    chance = random.Random(5)
    for _ in range(100):
        counts = [chance.randint(1, 5) for _ in range(chance.randint(1, 4))]
        types = [
            DeviceType(count=count, step_s=random_step(chance), cap=10_000) for count in counts
        ]
        total = chance.randint(50, 400)
        devices = [kind for kind in types for _ in range(kind.count)]
        plain = allocate(total, [kind.step_s for kind in devices], [10_000] * len(devices))
        slowest = max(kind.step_s(size) for kind, size in zip(devices, plain, strict=True))
        assert slowest_s(types, allocate_types(total, types)) == pytest.approx(slowest, rel=1e-12)


def test_a_total_that_is_no_multiple():
    with pytest.raises(ValueError, match="multiples of 8"):
        allocate_types(12, [DeviceType(count=2, step_s=float, cap=4)], granularity=8)


class TestAccumulation:
    def test_above_the_cap_a_step_has_several_micro_batches(self):
        steps = Accumulating(line(12, 0.5), 100)
        assert [steps.micro_batches(size) for size in (1, 100, 101, 200, 201)] == [1, 1, 2, 2, 3]
        assert steps.step_s(200) == pytest.approx(2 * 62)
        assert steps.step_s(101) == pytest.approx(2 * (12 + 0.5 * 51))

    def test_more_samples_never_take_less(self):
        """Also where two halves are quicker than the whole."""
        steps = Accumulating(lambda size: size**2, 8)
        times = [steps.step_s(size) for size in range(1, 60)]
        assert times == sorted(times)


class TestTypes:
    """Which types take part, against every choice of types tried one by one."""

    @pytest.fixture
    def member(self):
        return card_of(probed("t4")).member

    def cards(self, member, chance, num):
        rest = {"folder": "", "record": None, "member": member}
        cards = []
        for place in range(num):
            count = chance.randint(1, 3)
            step_s = line(chance.uniform(0, 60), chance.uniform(0.1, 4))
            steps = Accumulating(step_s, chance.randint(2, 30))
            cards.append(Card(name=f"t{place}", count=count, steps=steps, **rest))
        return cards

    def test_against_every_choice(self, member):
        chance = random.Random(3)
        dropped = 0
        for _ in range(500):
            cards = self.cards(member, chance, chance.randint(1, 4))
            per_gpu, fixed = chance.choice([0.0, 0.2, 1.5]), chance.choice([0, 3])
            job = Job(
                Link(
                    confidence="estimate",
                    source="by formula",
                    bytes_per_s=1.0,
                    gradient_bytes=fixed,
                    latency_s=per_gpu,
                )
            )
            total = chance.randint(sum(card.count for card in cards), 40)
            chosen, sizes = best_types(cards, total, 1, job)
            step = option_of("plan", "x", chosen, sizes, everyone=cards, job=job).step_s
            every = []
            for num in range(1, len(cards) + 1):
                for these in itertools.combinations(cards, num):
                    types = [
                        DeviceType(count=card.count, step_s=card.steps.step_s, cap=total)
                        for card in these
                    ]
                    split = allocate_types(total, types, smallest=1)
                    if split is not None:
                        ranks = sum(card.count for card in these)
                        every.append(slowest_s(types, split) + job.sync_at(ranks)[0])
            assert step == pytest.approx(min(every), rel=1e-9)
            dropped += len(chosen) < len(cards)
        assert dropped > 50

    def test_equal_shares(self, member):
        cards = self.cards(member, random.Random(1), 2)
        num = sum(card.count for card in cards)
        pairs = [pair for of_type in equal_sizes(cards, 10 * num) for pair in of_type]
        assert {size for size, _ in pairs} == {10}
