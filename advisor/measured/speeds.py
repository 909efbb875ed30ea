"""How fast sizes are beside each other: one estimate of all that a record timed.

A machine is slower by a fifth for seconds, and no counter shows it. So a reading, of a window by
itself or of a turn beside other sizes, is

    log(samples per second) = size + process + trial + round + place + noise

where process, trial and round are what the machine did meanwhile, the same for all sizes in it, and
place is what one size met in one trial alone. All of these are random, as large as the record shows
them. Sizes in one round share the first three, neighbours in one process one of them. What two
sizes do not share makes their ratio less sure; that is all in which comparisons differ. Noise has
the heavy tails of Student's t: a reading that something held up counts for little (Lange, Little
and Taylor, J. Am. Stat. Assoc. 84, 1989).
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Sequence
from math import exp, fsum, hypot, log, sqrt
from statistics import NormalDist, median
from typing import Any, NamedTuple

from ...records import DeviceInfo, Spread, Trial
from ...spread import CONFIDENCE, student

SURE = 0.98
"""Confidence of an interval that speaks for a change: the truth lies above it once in a hundred."""
TAILS = 4
"""Degrees of freedom of the noise; few, for a robust fit (Lange, Little and Taylor)."""
SWEEPS = 10
"""Alternations between effects and variances; later ones move intervals by less than a tenth."""
CLEAN = 4
"""Undisturbed readings of each size that make disturbed ones unnecessary: with fewer, one that is
far off would not stand out."""
FEW = 3
"""Readings in turn beside others of which fewer tell nothing: in one round a neighbour may have met
one size alone. Beside three busy processes one round had two sizes of a GAN alike; by themselves
one is x2.6 as fast (bench/results/regret_amd-epyc-2-cores_2026-11-27.json)."""
SPLIT = 2.0
"""Readings in turn of one size that differ by so much are of two states of the machine: fewer than
`CLEAN` do not tell which of them is the usual one. On paper a size that truly gives 100 samples/s
was read with 18, 101 and 18, beside a smaller one with 91 each time (seed 347 of
tests/advisor/test_mixtures.py)."""
SPUN = 3.0
"""A step that used so many times the CPU time that its samples take in another step, spun: its
threads waited for one that had no core. With two threads on one core and a neighbour on the
other a step of a perceptron took 0.61 s and 0.61 s of CPU time, and beside the same neighbour 12 ms
and 15 ms while each thread had a core (two cores of an AMD EPYC)."""
POSSIBLE = 1.1
"""A larger size may seem so many times as fast as its size allows, by noise."""
LEAST_TIME_SHARE = 0.01
"""No step would have taken less than this share of its time."""
ALONE = 0.1
"""Standard error of one value alone: log times of single steps on two busy cores differ so much."""


LEAST_ERROR = 0.001
"""Standard error of a window at the least; equal values are no proof."""


class Wander(NamedTuple):
    """How much speeds are expected to wander before the record says: standard deviations of logs.

    Attributes:
        noise: of a reading in turn.
        process, trial, round, place: of effects of these kinds.
        worth: readings, and effects of each kind, that this expectation counts for.
    """

    noise: float
    process: float
    trial: float
    round: float
    place: float
    worth: float


OF_A_CPU = Wander(noise=0.03, process=0.01, trial=0.02, round=0.12, place=0.005, worth=3)
"""Sixteen recorded runs on two virtual cores show noise of 0.06, trials of 0.09, rounds of 0.08,
places of 0.015 and processes of 0.01 (bench/results/sweep-*). Those are a busy machine's; one that
is quiet has none. The expectation lies between, and is worth little, so that what a record shows
overrules it soon; with it no answer of 1,000 mixtures of disturbances is wrong
(tests/advisor/test_mixtures.py)."""
IDLE_PCT = 80.0
"""A GPU that is never busy for more of a step waits for its host, whose speed it has."""
OF_A_GPU = Wander(noise=0.02, process=0.0003, trial=0.001, round=0.01, place=0.0003, worth=3)
"""A GPU's clock is steadier, and throttling is seen."""


def wander_of(device: DeviceInfo | None, trials: Iterable[Trial]) -> Wander:
    """How much speeds are expected to wander on a device.

    On an H100 steps of a GPT that kept it busy for 5 % of the time took 18.6 ms, and 13.2 ms eight
    seconds later in the same process; blocks of steps that kept it busy differed by 1 %.
    """
    busy = [
        trial.profile.busy_pct
        for trial in trials
        if trial.profile is not None and trial.profile.busy_pct is not None
    ]
    waits = bool(busy) and max(busy) < IDLE_PCT
    return OF_A_CPU if device is None or device.kind == "cpu" or waits else OF_A_GPU


class Reading(NamedTuple):
    """One value of one size.

    Attributes:
        rate: log of samples per second.
        lost: what is added to it without the time that was lost to others.
        error: standard error of a window; `None` of a turn, whose noise the record shows.
        weight: of a turn whose batches are uneven, its share of time; 0 of others.
        clean: nothing held it up.
        cpu_s: CPU seconds of a micro-batch; `None` where unknown.
        lasted_s: seconds of its timed steps, of a turn with its warm-up; 0 where unknown.
        trial, process: that it was taken in, by number.
        round: of a turn; `None` of a window, which is as long as many.
    """

    size: int
    rate: float
    lost: float
    error: float | None
    weight: float
    clean: bool
    trial: int
    process: int
    round: int | None
    cpu_s: float | None = None
    lasted_s: float = 0.0


class Speeds:
    """The throughput of sizes, and how sure their ratios are.

    Args:
        readings: of all sizes.
        unsure: what the mean batch of a size may be off by, a share (standard error).
        wander: what is expected of the machine.
    """

    def __init__(
        self, readings: Sequence[Reading], unsure: dict[int, float], wander: Wander
    ) -> None:
        self._readings, self._unsure, self._wander = readings, unsure, wander
        self._place = {
            size: place for place, size in enumerate(sorted({each.size for each in readings}))
        }
        self._counts = Counter(each.size for each in readings)
        self._turns = Counter(each.size for each in readings if each.error is None)
        rounds: dict[tuple[int, int | None], set[int]] = {}
        for each in readings:
            rounds.setdefault((each.trial, each.round), set()).add(each.size)
        self._rounds = list(rounds.values())
        turns = {
            size: [each.rate for each in readings if each.size == size and each.error is None]
            for size in self._turns
        }
        self._split = {
            size
            for size, rates in turns.items()
            if 1 < len(rates) < CLEAN and max(rates) - min(rates) > log(SPLIT)
        }
        self._num_trials = len({each.trial for each in readings})

    @functools.cached_property
    def _fit(self) -> _Fit:
        return _fitted(self._readings, self._place, self._wander)

    def took_turns(self, size: int) -> bool:
        """Whether a size was read in turn with others."""
        return bool(self._turns[size])

    def tells(self, size: int, other: int) -> bool:
        """Whether their ratio may be believed.

        Where one only ever ran beside others they must have met in enough rounds, or be linked by
        sizes that did: what spinning threads add to a step is no waiting, and much the same for all
        sizes. It makes a larger one look better than it is, and nothing tells how much. A ratio
        beyond that of the sizes is one of two states of the machine: no step of more samples takes
        less time. Nor may it where one has few readings in turn, and these are of two states.
        """
        if self._split & {size, other}:
            return False
        if self.calm(size, other):
            return True
        large, small = max(size, other), min(size, other)
        ratio = self.compare(large, small) if other in self._linked(size) else None
        return ratio is not None and ratio.low <= POSSIBLE * large / small

    def calm(self, size: int, other: int) -> bool:
        """Whether both were read at least once while nothing held them up."""
        return {size, other} <= {each.size for each in self._readings if each.clean}

    def _linked(self, size: int) -> set[int]:
        """Sizes that met this one in `FEW` rounds, or one that did, and so on."""
        met, new = {size}, [size]
        while new:
            one = new.pop()
            links = {each for each in self._place if self.num_rounds(one, each) >= FEW} - met
            met |= links
            new.extend(links)
        return met

    def num_rounds(self, size: int, other: int) -> int:
        """Rounds that had both."""
        return sum({size, other} <= sizes for sizes in self._rounds)

    def num_comparisons(self, size: int, other: int) -> int:
        """Rounds that had both, else readings of each."""
        return self.num_rounds(size, other) or min(self._counts[size], self._counts[other])

    def compare(self, size: int, other: int, confidence: float = CONFIDENCE) -> Spread | None:
        """Throughput of `size` over that of `other`; `None` where one was not read.

        Where steps lost time to others, what they would have taken alone lies between their time
        and their time without that. Beside the same neighbours the share of the counted time that
        was truly lost is one for both: the interval reaches from the ratio with all of it to the
        ratio with none.
        """
        if size not in self._place or other not in self._place:
            return None
        a, b = self._place[size], self._place[other]
        rates, lost, covariance = self._fit.rates, self._fit.lost, self._fit.covariance
        variance = max(0.0, covariance[a, a] + covariance[b, b] - 2 * covariance[a, b])
        half = self._half_width(sqrt(variance), size, other, confidence=confidence)
        middle = rates[a] - rates[b]
        alone = middle + lost[a] - lost[b]
        return Spread(
            median=exp(middle),
            low=exp(min(middle, alone) - half),
            high=exp(max(middle, alone) + half),
            num_samples=self.num_comparisons(size, other),
            confidence=confidence,
        )

    def rate(self, size: int, *, alone: bool = True) -> Spread:
        """Samples per second of a size that took turns, on the machine as it usually was.

        The interval is that of its own readings.

        Args:
            alone: where steps waited for a core, it reaches up to what they would have reached
                without that. Else the rate is beside the same neighbours, as that of other sizes.
        """
        place, num = self._place[size], max(1, self._turns[size])
        half = self._half_width(self._fit.noise[place] / sqrt(num), size)
        lost = median(each.lost for each in self._readings if each.size == size) if alone else 0.0
        middle = self._fit.rates[place]
        return Spread(
            median=exp(middle),
            low=exp(middle - half),
            high=exp(middle + half + lost),
            num_samples=num,
            confidence=CONFIDENCE,
        )

    def _half_width(self, error: float, *sizes: int, confidence: float = CONFIDENCE) -> float:
        """Half the width of an interval of logs; expected wander counts as further readings."""
        if all(map(self.took_turns, sizes)):
            num_free = min(self._counts[size] for size in sizes) - 1
        else:
            num_free = self._num_trials - len(self._place)
        batches = (self._unsure.get(size, 0.0) for size in sizes)
        free = max(1, round(self._wander.worth + num_free))
        return student(free, confidence) * float(hypot(error, *batches))


class _Fit(NamedTuple):
    """The estimate: arrays by size, ascending.

    Attributes:
        rates: logs of samples per second.
        lost: what they would be higher by without the time that was lost.
        covariance: of the rates.
        noise: standard deviation of a reading in turn.
    """

    rates: Any
    lost: Any
    covariance: Any
    noise: Any


def _fitted(readings: Sequence[Reading], places: dict[int, int], wander: Wander) -> _Fit:
    """Effects by least squares, weights and variances by what these leave, in turn.

    A variance is the mean square over what the readings tell of its effects (MacKay, Neural
    Computation 4, 1992, section 4.4), with what was expected of it as some more.
    """
    import numpy as np  # noqa: PLC0415  what starts a run, or only helps, does without it

    columns = np.array([places[each.size] for each in readings], dtype=int)
    num = len(places)
    kinds: tuple[tuple[list[Any], float], ...] = (
        ([each.process for each in readings], wander.process),
        ([each.trial for each in readings], wander.trial),
        ([each.round and (each.trial, each.round) for each in readings], wander.round),
        ([(each.trial, each.size) for each in readings], wander.place),
    )
    design, parts, expected = np.eye(num)[columns], [], []
    for keys, deviation in kinds:
        numbers = {
            key: at for at, key in enumerate(dict.fromkeys(key for key in keys if key is not None))
        }
        rows = np.vstack([np.eye(len(numbers)), np.zeros((1, len(numbers)))])
        parts.append(slice(design.shape[1], design.shape[1] + len(numbers)))
        expected.append(deviation**2)
        design = np.hstack([design, rows[[numbers.get(key, -1) for key in keys]]])
    values = np.array([each.rate for each in readings])
    level = values.mean() if len(values) else 0.0
    in_turn = np.array([each.error is None for each in readings], dtype=bool)
    errors = np.array([each.error or 1.0 for each in readings])
    given = np.array([each.weight for each in readings])
    weights = np.where(given > 0, given, 1.0)
    noise, variances = np.full(num, wander.noise**2), list(expected)
    for sweep in range(SWEEPS):
        precision = np.where(in_turn, weights / noise[columns], errors**-2.0)
        penalty = np.zeros(design.shape[1])
        for part, variance in zip(parts, variances, strict=True):
            penalty[part] = 1 / variance
        covariance = np.linalg.inv((design.T * precision) @ design + np.diag(penalty))
        solution = covariance @ (design.T * precision)
        effects = solution @ (values - level)
        if sweep + 1 == SWEEPS:
            break
        rest = values - level - design @ effects
        known = ((design @ covariance) * design).sum(axis=1)
        tails = (TAILS + 1) / (TAILS + (rest**2 + known) / noise[columns])
        free = np.bincount(columns, in_turn * (1 - precision * known), minlength=num)
        squares = np.bincount(columns, in_turn * weights * rest**2, minlength=num)
        noise = (wander.worth * wander.noise**2 + squares) / (wander.worth + free)
        weights = np.where(given > 0, given, tails)
        told = 1 - penalty * np.diag(covariance)  # how far each effect is told by the readings
        variances = [
            (wander.worth * before + (effects[part] ** 2).sum()) / (wander.worth + told[part].sum())
            for part, before in zip(parts, expected, strict=True)
        ]
    return _Fit(
        rates=level + effects[:num],
        lost=solution[:num] @ np.array([each.lost for each in readings]),
        covariance=covariance[:num, :num] + np.diag(_luck(readings, places, noise)),
        noise=np.sqrt(noise),
    )


def _luck(readings: Sequence[Reading], places: dict[int, int], noise: Any) -> list[float]:
    """Variance, by size, of what windows met by chance, where others took turns and it did not.

    A window that is no longer than a turn is off by what their turns are, whatever its own steps
    say, and a longer one by as much less as the mean of so many turns.

    Args:
        noise: variance of a reading in turn, by size.
    """
    turns = [each for each in readings if each.error is None]
    met = {each.size for each in turns}
    luck = [0.0] * len(places)
    if not turns:
        return luck
    turn_s = median(each.lasted_s for each in turns)
    usual = fsum(noise[places[size]] for size in met) / len(met)
    counts = Counter(each.size for each in readings)
    for each in readings:
        if each.size not in met and each.lasted_s:
            share = min(1.0, turn_s / each.lasted_s)
            luck[places[each.size]] += share * usual / counts[each.size] ** 2
    return luck


def speeds_of(trials: Iterable[Trial], wander: Wander) -> Speeds:
    """Finds how fast sizes are beside each other, from windows of one size and from turns alike."""
    trials = tuple(trials)
    unsure: dict[int, float] = {}
    for turns in (trial.turns for trial in trials if trial.turns is not None):
        for size, share in zip(turns.sizes, turns.unsure, strict=False):
            unsure[size] = max(share, unsure.get(size, 0.0))
    return _speeds(tuple(readings_of(trials)), tuple(sorted(unsure.items())), wander)


@functools.lru_cache(maxsize=32)  # a search asks for the same readings many times
def _speeds(
    readings: tuple[Reading, ...], unsure: tuple[tuple[int, float], ...], wander: Wander
) -> Speeds:
    return Speeds(readings, dict(unsure), wander)


def readings_of(trials: Sequence[Trial]) -> list[Reading]:
    """Takes the readings of trials; where all sizes have enough undisturbed ones, only these.

    Where one has not, all count: the few moments in which another met no others would be compared
    with the usual ones of this. Of a size with too few readings that were disturbed it takes none
    of these.
    """
    windows = [reading for trial in trials for reading in _window(trial)]
    by_size = {trial.batch_size: trial for trial in trials if trial.kind == "timed"}
    turns = [reading for trial in trials for reading in _in_turn(trial, by_size)]
    windows, turns = _unspun(windows, turns)
    clean = Counter(each.size for each in turns if each.clean)
    num = Counter(each.size for each in turns)
    wanting = any(num[size] >= FEW and clean[size] < CLEAN for size in num)
    turns = [each for each in turns if each.clean or (wanting and num[each.size] >= FEW)]
    calm = {each.size for each in (*windows, *turns) if each.clean}
    return [*(each for each in windows if each.clean or each.size not in calm), *turns]


def _unspun(windows: list[Reading], turns: list[Reading]) -> tuple[list[Reading], list[Reading]]:
    """Leaves out readings whose threads spun while those of others did not.

    In a round that is what spun alone. Of windows that is each one beside others of a size that
    took turns: it met one state or the other, and in turn all sizes met both.
    """
    rounds: dict[tuple[int, int | None], list[Reading]] = {}
    for each in turns:
        rounds.setdefault((each.trial, each.round), []).append(each)
    alike = [
        each
        for together in rounds.values()
        for each in together
        if each.clean or _times_of_work(each, together) <= SPUN
    ]
    num = Counter(each.size for each in alike)
    return [each for each in windows if each.clean or num[each.size] < FEW], alike


def _times_of_work(reading: Reading, others: Iterable[Reading]) -> float:
    """CPU time over the least that others leave for it, 1 where that is unknown.

    A step of more samples takes no less, and one of fewer no less a sample.
    """
    if reading.cpu_s is None:
        return 1.0
    return max(
        (
            reading.cpu_s / (other.cpu_s * max(1.0, reading.size / other.size))
            for other in (reading, *others)
            if other.cpu_s
        ),
        default=1.0,
    )


def _window(trial: Trial) -> list[Reading]:
    """A size by itself; beside others, or skewed, its upper end is what it may reach."""
    rate = trial.samples_per_s
    if trial.kind != "timed" or rate is None or rate.median <= 0:
        return []
    lost = 0.0
    below = log(rate.median / max(rate.low, LEAST_TIME_SHARE * rate.median))
    above = log(rate.high / rate.median)
    if trial.contended or rate.is_skewed:
        lost, above = above, below
    quantile = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    error = (below + above) / 2 / quantile if rate.is_interval else ALONE
    return [
        Reading(
            trial.batch_size,
            log(rate.median),
            lost=lost,
            error=max(error, LEAST_ERROR),
            weight=0.0,
            clean=not trial.contended,
            trial=trial.ordinal,
            process=trial.worker,
            round=None,
            cpu_s=_of_one(None if trial.quality is None else trial.quality.cpu_s, trial),
            lasted_s=_lasted_s(trial),
        )
    ]


def _lasted_s(trial: Trial) -> float:
    """Seconds of the timed steps of a window."""
    if trial.quality is None or trial.step_s is None:
        return 0.0
    return trial.quality.num_steps * trial.step_s.median


def _of_one(cpu_s: float | None, trial: Trial) -> float | None:
    """CPU seconds of one micro-batch of a step."""
    return None if cpu_s is None else cpu_s / (trial.micro_batches or 1)


def _in_turn(trial: Trial, windows: dict[int, Trial]) -> list[Reading]:
    """Sizes in rounds; a round of one says nothing.

    Rounds of uneven batches differ by what these held, and the few that met the longest take
    several times as long. There the rate is that of the sums: readings are linearised around it,
    and count by their time (Cochran, Sampling Techniques, 3rd ed., section 6.4).
    """
    turns = trial.turns
    if turns is None:
        return []
    readings: list[Reading] = []
    turn_s = trial.elapsed_s / max(1, len(turns.step_s) * len(turns.sizes))
    for column, size in enumerate(turns.sizes):
        window = windows.get(size, trial)
        per_step = size * (trial.micro_batches or window.micro_batches or 1)
        rounds = [
            (number, seconds)
            for number, row in enumerate(turns.step_s)
            if (seconds := row[column]) and sum(map(bool, row)) > 1
        ]
        amounts = [(turns.real[n][column] or 0.0) if turns.unsure else per_step for n, _ in rounds]
        took_s = [s * amount / per_step for (_, s), amount in zip(rounds, amounts, strict=True)]
        for (number, seconds), spent_s in zip(rounds, took_s, strict=True):
            rate, weight = log(per_step / seconds), 0.0
            if turns.unsure:
                whole = fsum(amounts) / fsum(took_s)
                rate = log(whole) + per_step / seconds / whole - 1
                weight = spent_s * len(rounds) / fsum(took_s)
            lost_s = turns.lost_s[number][column] if turns.lost_s else 0.0
            readings.append(
                Reading(
                    size,
                    rate + log(window.arrived_share),
                    lost=-log(max(LEAST_TIME_SHARE, 1 - lost_s / seconds)),
                    error=None,
                    weight=weight,
                    clean=not lost_s,
                    trial=trial.ordinal,
                    process=turns.workers[column] if turns.workers else trial.worker,
                    round=number + 1,
                    cpu_s=_of_one(turns.cpu_s[number][column], trial) if turns.cpu_s else None,
                    lasted_s=turn_s,
                )
            )
    return readings
