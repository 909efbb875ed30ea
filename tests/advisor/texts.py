"""Trials of batches of texts on paper: what they held, and what they took by a law."""

import random
from math import ceil

import msgspec
from batchadvisor.records import CountedTokens, TokenLengths, Tokens, TokenStep, Turns
from batchadvisor.spread import rate_of_sums, spread_of

from ..on_paper import GIB, loader_of, trial_of
from .drifting import Speed
from .machine import Machine

FIXED_S, POSITION_S = 1e-3, 1e-5
RNG = random.Random(4)
TEXTS = [min(300, 8 + int(20 * RNG.paretovariate(1.3))) for _ in range(4000)]


def batches_of(size, num, *, grouped=False):
    if not grouped:
        return [RNG.choices(TEXTS, k=size) for _ in range(num)]
    ordered = sorted(TEXTS)
    starts = [RNG.randrange(0, len(ordered) - size) for _ in range(num)]
    return [ordered[start : start + size] for start in starts]


def positions_of(batch):
    return len(batch) * max(batch)


def seconds_of(batch):
    return FIXED_S + POSITION_S * positions_of(batch)


def counted(batches):
    return CountedTokens(
        num_batches=len(batches),
        real=sum(map(sum, batches)),
        positions=sum(map(positions_of, batches)),
        squares=sum(len(batch) * max(batch) ** 2 for batch in batches),
    )


def trial_at(size, batches, times=None, **changes):
    """A timed trial of these batches; its own rate is that of their median step."""
    times = times or [seconds_of(batch) for batch in batches]
    lengths = sorted(length for batch in batches for length in batch)
    sums, num = counted(batches), len(batches)
    stride = ceil(num / 48)
    tokens = Tokens(
        num_batches=num,
        evidence="attention mask",
        positions_per_step=sums.positions / num,
        real_per_step=sums.real / num,
        squares_per_step=sums.squares / num,
        padding_share=1 - sums.real / sums.positions,
        lengths=TokenLengths(
            num_sequences=len(lengths),
            shortest=lengths[0],
            median=lengths[len(lengths) // 2],
            longest=lengths[-1],
            ordered=tuple(lengths[:: ceil(len(lengths) / 400)]),
        ),
        steps=tuple(
            TokenStep(
                step_s=seconds,
                positions=positions_of(batch),
                squares=len(batch) * max(batch) ** 2,
                real=sum(batch),
                rows=len(batch),
            )
            for batch, seconds in list(zip(batches, times, strict=True))[::stride]
        ),
        real_per_s=rate_of_sums(list(map(sum, batches)), times),
        counted=sums,
    )
    return msgspec.structs.replace(
        trial_of(size, spread_of(times).median, **changes), tokens=tokens
    )


class TextMachine(Machine):
    """A CPU whose speed drifts, and a script whose batches are texts of uneven length.

    Attributes:
        batching: how the texts are laid into batches: `padded`, `grouped`, or a `stream`.
    """

    SWAPS_FROM = 1_000_000
    """Batches with more rows x length² take twice as long: no law of the steps has that."""

    def __init__(self, batching, *, own=8, seed=0):
        super().__init__(kind="cpu", capacity=20 * GIB, seed=seed)
        self.batching = batching
        loader = loader_of(len(TEXTS), batch_size=own)
        loader = msgspec.structs.replace(
            loader,
            sampler={"padded": "RandomSampler", "grouped": "ByLength"}.get(batching, "-"),
            iterable=batching == "stream",
            num_samples=None if batching == "stream" else len(TEXTS),
        )
        self.discovery = msgspec.structs.replace(
            self.discovery, loaders=(loader,), native_batch_size=own
        )
        self.time_s = lambda size: FIXED_S + POSITION_S * size * 100
        self.rng = random.Random(seed)
        self.speed = Speed(seed)
        self.passes = {}

    def epoch(self, size):
        order = list(TEXTS)
        if self.batching == "grouped":
            order.sort()
        elif self.batching == "padded":
            self.rng.shuffle(order)
        batches = [order[at : at + size] for at in range(0, len(order) - size + 1, size)]
        if self.batching == "grouped":
            random.Random(1).shuffle(batches)
        return batches

    def seconds(self, batch):
        swaps = len(batch) * max(batch) ** 2 > self.SWAPS_FROM
        return seconds_of(batch) * (2 if swaps else 1)

    def real_rate(self, size):
        """Real tokens per second of whole epochs."""
        batches = [batch for _ in range(3) for batch in self.epoch(size)]
        return sum(map(sum, batches)) / sum(map(self.seconds, batches))

    def _steps(self, size, num):
        made = []
        for _ in range(num):
            batches = self.passes.setdefault(size, [])
            batches.extend([] if batches else self.epoch(size))
            batch = batches.pop(0)
            usual_s = self.seconds(batch)
            made.append((batch, usual_s * self.speed.factor(usual_s)))
        return made

    def _run(self, request, worker, ordinal, rng):
        if request.kind == "fit":
            return super()._run(request, worker, ordinal, rng)
        began_s, size = self.speed.now_s, request.batch_size
        where = {"ordinal": ordinal, "worker": worker, "purpose": request.purpose}
        if request.turns is not None:
            trial = self._in_turn(request, **where)
        else:
            made = self._steps(size, max(12, min(300, ceil(0.6 / self.time_s(size)))))
            batches, times = map(list, zip(*made, strict=True))
            trial = trial_at(size, batches, times, peak=GIB + size * 2**20, **where)
        return msgspec.structs.replace(trial, elapsed_s=self.speed.now_s - began_s)

    def _in_turn(self, request, **where):
        plan = request.turns
        cells, every = [], {size: [] for size in plan.sizes}
        for _ in range(plan.num_rounds):
            row = []
            for size, num in zip(plan.sizes, plan.num_steps, strict=True):
                self._steps(size, plan.num_warmup_steps)
                made = self._steps(size, num)
                sums = counted([batch for batch, _ in made])
                every[size] += [batch for batch, _ in made]
                row.append((sum(time for _, time in made), sums, num))
            cells.append(row)

        def table(value):
            return tuple(tuple(value(*cell) for cell in row) for row in cells)

        turns = Turns(
            sizes=plan.sizes,
            step_s=table(lambda seconds, sums, num: seconds / num),
            real=table(lambda seconds, sums, num: sums.real / num),
            positions=table(lambda seconds, sums, num: sums.positions / num),
            squares=table(lambda seconds, sums, num: sums.squares / num),
            counted=tuple(map(counted, every.values())),
        )
        return trial_of(request.batch_size, kind="turns", turns=turns, **where)
