"""The memory search on plain numbers, wherever the limit lies and however memory grows."""

import random
from dataclasses import dataclass, field

import pytest
from batchadvisor.advisor.search.largest_size import Seen, next_fit

GIB = 2**30
CAPACITY = 80 * GIB
TARGET = int(0.95 * CAPACITY)
NATIVE = 32
EXACT = (0.0, 20 * 2**20)
"""What readings of an allocator are taken to be good for."""
NOISE = 0.01
SOME = [*range(1, 100), *range(100, 20_001, 37)]


def law(largest, fixed=0.1, power=1.0):
    """Peak bytes of a size: the capacity is reached at `largest`."""
    return lambda size: CAPACITY * (fixed + (1 - fixed) * (size / largest) ** power)


def largest_within(memory, limit):
    """The largest size whose peak is within the limit."""
    low, high = 0, 1 << 26
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if memory(middle) <= limit else (low, middle)
    return low


@dataclass
class Found:
    """What a search did: sizes that ran, with their readings, and those refused, in order."""

    ran: dict[int, int] = field(default_factory=dict)
    refused: list[int] = field(default_factory=list)

    @property
    def size(self):
        return max((size for size, peak in self.ran.items() if peak <= TARGET), default=0)

    @property
    def num_trials(self):
        return len(self.ran) + len(self.refused)


def search(memory, *, native=NATIVE, blind=False, noise=0.0, rng=None):
    """Runs a whole search on paper; a reading that tells nothing stands for a blind one."""
    result, size = Found(), native
    while True:
        peak = memory(size) * (rng.gauss(1, noise) if noise else 1)
        if memory(size) > CAPACITY:
            result.refused.append(size)
        else:
            result.ran[size] = 10 * 2**20 if blind else int(peak)
        step = next_fit(
            Seen(
                peaks=result.ran,
                refused=min(result.refused, default=None),
                target_bytes=TARGET,
                uncertainty=(noise, 0) if noise else EXACT,
                num_refusals=len(result.refused),
            )
        )
        if isinstance(step, str):
            return result
        assert step not in result.ran, "a size that ran is tried again"
        assert not result.refused or step < min(result.refused), "nor anything above a refusal"
        assert result.num_trials < 20, "the search does not end"
        size = step


class TestSweep:
    """The answer always ran; it lies within 8 % of the largest size within the margin."""

    @pytest.mark.parametrize(
        "limits",
        [SOME, pytest.param(range(1, 20_001), marks=pytest.mark.slow)],
        ids=["some", "all"],
    )
    def test_every_limit(self, limits):
        for largest in limits:
            result = search(law(largest))
            fits = largest_within(law(largest), TARGET)
            assert 0.92 * fits <= result.size <= fits
            # Only a script that starts too large is refused.
            assert not result.refused or min(result.refused) <= NATIVE
            blind = search(law(largest), blind=True)
            assert 0.92 * largest <= blind.size <= largest
            assert len(blind.refused) <= 4
            assert blind.num_trials <= 11

    @pytest.mark.parametrize("power", [0.85, 1.0, 1.15])
    @pytest.mark.parametrize("fixed", [0.1, 0.4, 0.75])
    def test_concave_straight_and_convex(self, fixed, power):
        for largest in SOME:
            memory = law(largest, fixed, power)
            fits = largest_within(memory, TARGET)
            result = search(memory)
            assert 0.92 * fits <= result.size <= fits
            assert result.num_trials <= 8
            assert not result.refused or min(result.refused) <= NATIVE

    @pytest.mark.parametrize("power", [0.85, 1.0, 1.15])
    @pytest.mark.parametrize("fixed", [0.1, 0.4, 0.75])
    def test_noise(self, fixed, power):
        """A reading is good for 1 %, so the answer is as good as three of these make it.

        Where three quarters are fixed, 1 % of a reading is 5 % of the size.
        """
        rng = random.Random(1)
        refused = 0
        shares = []
        for largest in SOME:
            memory = law(largest, fixed, power)
            result = search(memory, noise=NOISE, rng=rng)
            low, fits, high = (
                largest_within(memory, TARGET * (1 + error))
                for error in (-3.5 * NOISE, 0, 3.5 * NOISE)
            )
            assert 0.92 * low - 1 <= result.size <= high
            refused += min(result.refused, default=0) > NATIVE
            shares.append(result.size / max(fits, 1))
        assert refused <= 0.05 * len(SOME)
        if fixed == 0.1:
            within = sum(0.92 <= share <= 1.0 for share in shares)
            assert within >= 0.97 * len(shares)

    @pytest.mark.parametrize("native", [1, 2, 8, 100, 1024])
    def test_wherever_it_starts(self, native):
        for largest in SOME[::7]:
            for blind in (False, True):
                memory = law(largest)
                limit = CAPACITY if blind else TARGET
                result = search(memory, native=native, blind=blind)
                assert 0.92 * largest_within(memory, limit) <= result.size <= largest


@pytest.mark.parametrize("fixed", [0.1, 0.4, 0.75])
def test_at_700_as_the_comparison_with_other_finders_has_it(fixed):
    """The confirmation is one trial more."""
    result = search(law(700, fixed))
    assert result.num_trials + 1 <= 5
    assert result.refused == []
    blind = search(law(700), blind=True)
    assert blind.num_trials + 1 <= 9
    assert len(blind.refused) <= 3


class TestDetails:
    def seen(self, peaks, target=1000, **changes):
        return Seen(peaks=peaks, target_bytes=target, uncertainty=(0.0, 1), **changes)

    def test_the_first_step_is_safe_whatever_is_fixed(self):
        assert next_fit(self.seen({8: 500})) <= 16
        assert next_fit(self.seen({8: 900})) == 9

    def test_a_floor_is_left_with_care(self):
        """Equal readings say nothing of the slope above them: it may be in proportion."""
        assert next_fit(self.seen({8: 500, 16: 500})) <= 16 * 4

    def test_between_a_fit_and_a_reading_above_the_target(self):
        assert 64 < next_fit(self.seen({32: 400, 64: 700, 128: 1100})) < 128

    def test_a_refusal_below_what_the_slope_promises(self):
        """The limit is not where the device says: from then on refusals decide."""
        peaks = {8: 100, 16: 110, 64: 170}
        step = next_fit(self.seen(peaks, refused=400, num_refusals=1))
        assert 64 < step < 400

    def test_sizes_without_a_reading(self):
        seen = self.seen({}, unread=frozenset({8, 16}), refused=32)
        assert 16 < next_fit(seen) < 32

    @pytest.mark.parametrize(
        ("peaks", "refused", "end"),
        [
            ({}, 1, "nothing fits"),
            ({100: 10}, 101, "bracketed"),
            ({100: 10}, 108, "bracketed"),
            ({10: 200, 50: 990}, None, "used up"),
        ],
    )
    def test_the_end(self, peaks, refused, end):
        assert end in next_fit(self.seen(peaks, refused=refused))

    def test_a_first_refusal_is_no_end(self):
        assert next_fit(self.seen({}, refused=64)) == 16

    def test_readings_that_are_too_coarse(self):
        seen = Seen(peaks={20: 990, 24: 1005}, target_bytes=1000, uncertainty=(0.02, 0))
        assert "as closely" in next_fit(seen)
