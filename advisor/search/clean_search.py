"""Which size without a harmful short last batch is tried, next to the best size of a goal."""

from __future__ import annotations

from ...records import Trial, TrialRequest
from ..choose.clean_size import cost_of
from ..choose.finalists import finalists
from ..choose.knee import knee, plateau, sure
from ..measured.epoch_end import CLEAN_REACH
from ..measured.isotonic import precisions
from ..measured.laws import fit_time, interpolated
from ..measured.measurements import Measurements
from ..measured.sizes import allowed, largest_allowed, smallest_allowed, smallest_sound
from ..measured.trials import throughput
from .requests import timed_request

_REASON = "next to {}, whose epochs end in a harmful short batch"


def next_clean(measurements: Measurements, best: int | None) -> TrialRequest | None:
    """A clean size near the best of a search for speed that is over, if none was tried yet.

    Args:
        best: the size of the goal, tail aside.
    """
    goal = measurements.goal
    if goal.kind not in ("throughput", "energy") or goal.sizes or best is None:
        return None
    if not measurements.harmful(best):
        return None
    near = _candidates(measurements, best)
    tried = {trial.batch_size for trial in measurements.record.trials if trial.purpose == "search"}
    if not near or any(size in tried or measurements.ruled_out(size) for size in near):
        return None
    return timed_request(measurements, near[0], _REASON.format(best))


def next_to_knee(measurements: Measurements) -> TrialRequest | None:
    """A clean size beside the knee to try, where its epoch would end in a harmful short batch."""
    size = knee(measurements)
    if measurements.goal.kind != "knee" or size is None or not measurements.harmful(size):
        return None
    if size not in finalists(measurements):
        return None  # where it took turns it was beyond the tolerance: so is what lies next to it
    sizes = measurements.searched
    top = int(min(max(sizes), size * CLEAN_REACH, largest_allowed(measurements)))
    # Round sizes only: one that kernels dislike would cost more than the tail.
    near = dict.fromkeys(allowed(measurements, candidate) for candidate in range(size + 1, top + 1))
    wanted = measurements.first_clean(candidate for candidate in near if size < candidate <= top)
    if wanted is None:
        wanted = _clean_below(measurements, sizes, size)
    if wanted is None or wanted in sizes or measurements.ruled_out(wanted):
        return None
    return timed_request(measurements, wanted, _REASON.format(size))


def _clean_below(measurements: Measurements, sizes: dict[int, Trial], size: int) -> int | None:
    """A smaller clean size that the sizes beside it put within the tolerance; the largest first.

    Taken where memory, the data or the largest size tried leave no larger one.
    """
    sizes = sure(sizes)
    if len(sizes) < 2:
        return None
    times = {other: other / throughput(trial) for other, trial in sizes.items()}
    rates = {other: rate for other, trial in sizes.items() if (rate := trial.samples_per_s)}
    step_s = interpolated(times, precisions(times, rates))
    floor = (1 - measurements.goal.tolerance) * plateau(sizes)
    least = max(
        smallest_allowed(measurements), smallest_sound(measurements), int(size / CLEAN_REACH)
    )
    near = dict.fromkeys(
        allowed(measurements, candidate) for candidate in range(size - 1, least - 1, -1)
    )
    fast = (
        candidate
        for candidate in near
        if least <= candidate < size and candidate / step_s(candidate) >= floor
    )
    return measurements.first_clean(fast)


def _candidates(measurements: Measurements, best: int) -> list[int]:
    """Clean round sizes near the best, the most promising first; none larger than what ran."""
    cost = cost_of(measurements)
    least = max(
        smallest_allowed(measurements), smallest_sound(measurements), round(best / CLEAN_REACH)
    )
    top = min(int(best * CLEAN_REACH), max(measurements.searched), largest_allowed(measurements))
    near = {allowed(measurements, size) for size in range(least, top + 1)} - {best}
    clean = [size for size in near if least <= size <= top and not measurements.harmful(size)]
    rates = _predicted(measurements, {*clean, best})
    if rates:
        clean = [size for size in clean if rates[size] >= (1 - cost) * rates[best]]
        top_rate = max((rates[size] for size in clean), default=1.0)

    def order(size: int) -> tuple[float, ...]:
        # In steps of a hundredth of the best: no law tells finer.
        rate = round(rates[size] / top_rate, 2) if rates else 0.0
        left = bool(measurements.last_batch(size))
        return (-rate, left, abs(size - best), size)

    return sorted(clean, key=order)


def _predicted(measurements: Measurements, sizes: set[int]) -> dict[int, float]:
    """Samples per second by the law of the timed sizes; empty where there is none."""
    times = {
        size: trial.step_s.median
        for size, trial in measurements.searched.items()
        if trial.step_s is not None
    }
    law = fit_time(times)
    if isinstance(law, str):
        return {}
    return {size: law.samples_per_s(size) for size in sizes}
