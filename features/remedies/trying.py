"""Tries remedies after a run: each in a fresh process, in turn with the script as it is."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

import msgspec

from ...advisor.measured.measurements import Measurements
from ...advisor.measured.page_faults import share_of_faults
from ...advisor.measured.scaling import input_share
from ...advisor.measured.sizes import round_size
from ...advisor.measured.speeds import wander_of
from ...errors import BatchAdvisorError, RunError, UsageError
from ...probes.devices import host
from ...probes.process.interrupts import cause_of, held_back
from ...probes.process.worker_listener import TimeOver
from ...records import Spread, Trial
from ...reports.words.wording import pad_digits, plural
from ...session.change_diff import NoDiffError, diff_of, edits_of_size
from ...session.display import Display
from ...session.recording.record_writer import RecordWriter
from ...session.recording.store import RunStore
from ...session.run import RunResult
from ...session.setup.options import RunOptions
from ...session.setup.target import choose_target
from ...session.workers.failures import tool_failed
from ...session.workers.restarts import Restarts
from ...spread import ratio_of, spread_of
from ...units import format_bytes, format_seconds
from . import store
from .catalogue import (
    ALL,
    EVERY_REMEDY,
    LEAST_GAIN,
    NO_BOUND,
    PERSISTENT,
    REMEDY_NAMES,
    Candidate,
    Known,
    candidates,
    epoch_of,
    place_of,
    restarts_of,
    together,
    worker_numbers,
)
from .compare import (
    AS_IT_IS,
    LOOKS,
    ROUNDS_TO_CLAIM,
    WITH_REMEDY,
    Turn,
    checked,
    is_enough,
    load_of,
    outcome_of,
    rates_of,
    ratio,
    said,
    within,
)
from .edits import edits_of
from .larger import fastest_larger
from .processes import ChangedWorkers, Process, Refused
from .records import Ceiling, NumbersChecked, Outcome, Remedies, TriedRemedy
from .settings import Begin, Drain, Facts, Kept, Settings, UsedAlready, Watched
from .words import all_gained, ratio_text

TRYING_SHARE = 3.0
"""Trying takes up to so many times the budget of the run, which with the run itself makes four."""
WINDOW_S, LONGEST_WINDOW_S = 0.5, 5.0
STEPS_A_WINDOW = 6
"""A window is as long as so many steps, within these seconds."""
NUM_WARMUP = 2
"""Steps of a window before those that count."""
LATEST = 2.5
"""A turn ends after so many times its window, its warm-up included, whatever came by then."""
DRAIN_S, DRAIN_SHARE = 1.0, 0.03
"""The loader alone is read for so long with each number of workers, at most this share of the
time."""
BEYOND_BOUND = 1.1
"""A bound is measured too: a gain may surely exceed it by so much."""
INPUT_MATTERS = 0.02
"""Share of a step from which on its wait for the loader is looked into."""
STEP_END_S = 5.0
"""A step that is under way as the time ends has so long to end; one that hangs never does."""
NO_TIME = "no time was left"
TOO_LITTLE_TIME = "too little time was left"
MAKES_ROOM = 0.97
"""A remedy that leaves less than this part of the peak makes room for a larger batch."""
MOST_LARGER = 64
"""Sizes up to so many times the present one are tried with it."""
ROOM_FOR_TWO = 1.25
"""Memory for a second process beside the first: so many times its peak."""
IN_FORCE_LATE = (
    "threads",
    "autocast",
    "tf32",
    "benchmark",
    "channels_last",
    "compile",
    "checkpoint",
    "widen",
)
"""Settings that are in force only once the loop is known."""


def names_of(text: str) -> tuple[str, ...]:
    """The names in `--try`.

    >>> names_of("amp, compile")
    ('amp', 'compile')

    Raises:
        UsageError: one of them is unknown, or there is none.
    """
    names = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    unknown = [name for name in names if name not in (ALL, *REMEDY_NAMES)]
    if unknown or not names:
        what = f"{unknown[0]!r} is no remedy" if unknown else "no remedy is named"
        raise UsageError(f"--try: {what}.", f"Take {ALL}, or some of {', '.join(REMEDY_NAMES)}.")
    return names


RANKS_REFUSED = "several ranks run in lock-step, and two jobs of them would share their devices"
NO_LOADER_STEERED = "the sizes do not reach this script through a DataLoader"


def why_not(options: RunOptions) -> str:
    """Why remedies cannot be tried of such a run; empty if they can."""
    if options.num_ranks is not None or options.launcher:
        return RANKS_REFUSED
    if options.gpus is not None or "," in options.device:
        return "several devices are probed at once"
    if options.dry_run:
        return "a dry run measures nothing"
    if not options.traits.steers_loader:
        return NO_LOADER_STEERED
    return ""


def try_remedies(
    options: RunOptions, result: RunResult, names: Sequence[str], display: Display
) -> Remedies:
    """Tries them, and keeps what came of it in the run's folder after each.

    Ctrl-C, and what fails, end it; what was measured by then is in what is returned.

    Args:
        result: of the run, which is over.
        names: of remedies, `all` among them.
    """
    return Trying(options, result, names, display).all_of_them()


class _Measured(NamedTuple):
    """A comparison as it ended."""

    turns: list[Turn]
    usual: Kept | None
    remedy: Kept | None


class Trying:
    """One go.

    Args:
        options, result, names, display: as above.
    """

    def __init__(
        self, options: RunOptions, result: RunResult, names: Sequence[str], display: Display
    ) -> None:
        record, advice = result.record, result.advice
        self._options, self._record, self._advice = options, record, advice
        self._folder, self._names, self._display = result.folder, names, display
        self._begun_s = time.monotonic()
        budget_s = TRYING_SHARE * record.goal.budget_s
        self._end_s = self._begun_s + budget_s
        chosen = advice.recommended
        size = 1 if chosen is None else chosen.batch_size
        device = "" if record.device is None else record.device.name
        self._remedies = Remedies(
            asked=tuple(names), batch_size=size, device=device, budget_s=budget_s
        )
        self._size = size
        self._num_processes = 0
        self._usual: Process | None = None
        self._usual_kept: Kept | None = None
        self._known: Known | None = None
        self._start_s = 0.0
        self._step_s = 0.1
        self._turns_s: list[float] = []
        self._wander = wander_of(record.device, record.trials)
        self._store: RunStore | None = None
        self._whole = False
        """Whether few long steps matter to what is compared, so that medians would hide it."""
        self._restarts = Restarts()
        self._pools: list[Process] = []
        self._larger_peaks: dict[int, int] = {}
        """Bytes at larger sizes that ran with the remedy that made room."""

    def all_of_them(self) -> Remedies:
        """Tries one after the other."""
        state, reason = "finished", ""
        try:
            self._try_all()
        except KeyboardInterrupt as pressed:
            with held_back():
                state, reason = "interrupted", f"interrupted by {cause_of(pressed)}"
        except Refused as refused:
            state, reason = "failed", f"the script as it is did not run again: {refused}"
        except TimeOver:
            reason = "the time was over"
            if self._known is None:
                state = "failed"
                reason = (
                    f"the {self._remedies.budget_s:.0f} s for remedies were over before the script "
                    "came to its training loop again: use a larger --budget"
                )
        except BatchAdvisorError as error:
            state, reason = "failed", error.what.rstrip(".")
        except Exception as fault:  # noqa: BLE001  ours; what was measured is kept
            state, reason = "failed", tool_failed(fault).what.rstrip(".")
        finally:
            self._end_all()
        self._change(state=state, reason=reason or self._remedies.reason)
        store.save_diff(self._folder, "".join(each.diff for each in all_gained(self._remedies)[:1]))
        return self._remedies

    # inside ----------------------------------------------------------------------------------

    def _try_all(self) -> None:
        if self._advice.recommended is None:
            raise RunError("no size was recommended, so that there is none to try remedies at.")
        record = self._record
        if record.distribution is not None:
            raise RunError(f"{RANKS_REFUSED}.")
        if record.discovery is None or not record.discovery.traits.steers_loader:
            raise RunError(f"{NO_LOADER_STEERED}.")
        self._store = RunStore(self._folder)
        try:
            self._look()
        except Refused as refused:
            if not refused.again:
                raise
            self._display.note(f"{refused}; {refused.again}")
            self._end_all_processes()
            self._look()
        assert self._known is not None
        found = candidates(self._known, self._names)
        self._say_what_is_not_tried(found)
        waiting = [each for each in found if each.bound.factor >= LEAST_GAIN]
        gained: list[tuple[Candidate, float]] = []
        while waiting:
            candidate = waiting.pop(0)
            if candidate.remedy.name == PERSISTENT:
                tried = self._started_anew(candidate)
            else:
                tried = self._one((candidate,), num_left=len(waiting) + 1)
            self._add(tried)
            if self._makes_room(tried):
                self._try_larger(candidate, tried, num_left=len(waiting) + 1)
            if tried.outcome == "gain" and tried.gain is not None:
                gained.append((candidate, tried.gain.median))
        best = together(self._best_of_each(gained))
        if len(best) > 1:
            self._change(together=self._one(best, num_left=1, anew=True))

    def _look(self) -> None:
        """Starts the script as it is, and sees what it does already."""
        self._display.note(f"trying remedies at batch {self._size}: the script as it is")
        usual = self._process(Settings())
        self._start_s = usual.start(self._end_s)
        usual.ask(Begin(), dict[str, Any], self._end_s)
        first = usual.timed(
            self._size,
            window_s=WINDOW_S,
            num_warmup=3,
            whole=True,
            deadline_s=self._left_s(),
            until_s=self._end_s + STEP_END_S,
        )
        if first.step_s is None:
            raise Refused("no step was timed")
        known_s = [each.step_s.median for each in self._record.trials
                   if each.batch_size == self._size and each.step_s is not None]  # fmt: skip
        self._step_s = min([first.step_s.median, *known_s])  # the first window may be disturbed
        self._check_time()
        self._usual = usual
        self._usual_kept = usual.ask(Watched(), Kept, self._end_s)
        used = usual.ask(Facts(batch_size=self._size), UsedAlready, self._end_s)
        self._known = self._known_of(used, first, ())
        ceilings = self._ceilings(usual, used)
        self._known = self._known_of(used, first, ceilings)
        self._change(ceilings=ceilings)

    def _check_time(self) -> None:
        """Whether one comparison fits.

        Raises:
            RunError: it does not.
        """
        wanted_s = self._comparison_s
        if self._left_s() >= wanted_s:
            return
        budget_s = self._record.goal.budget_s
        enough_s = budget_s + (wanted_s - self._left_s()) / TRYING_SHARE
        raise RunError(
            f"one comparison takes about {wanted_s:.0f} s, and {self._left_s():.0f} s are left of "
            f"the {TRYING_SHARE * budget_s:.0f} s for remedies; --budget {enough_s + 1:.0f}s is "
            "enough."
        )

    def _ceilings(self, usual: Process, used: UsedAlready) -> tuple[Ceiling, ...]:
        """What the loader gives alone, where that matters to a remedy that was asked for."""
        assert self._known is not None
        share = self._known.input_share
        of_workers = {"workers", PERSISTENT, ALL} & set(self._names)
        waits = share is None or share >= INPUT_MATTERS
        restarts = bool(used.num_workers) and not used.persistent_workers
        if not of_workers or not (waits or restarts):
            return ()
        numbers = [used.num_workers]
        if waits:
            numbers += [n for n in worker_numbers(used.cores_at_start) if n != used.num_workers]
        limit_s = min(DRAIN_S, DRAIN_SHARE * self._remedies.budget_s)
        drain = Drain(
            num_workers=tuple(numbers),
            batch_size=self._size,
            limit_s=limit_s,
            restarted=used.num_workers if restarts else 0,
        )
        self._display.note("reading from the loader alone")
        try:
            return tuple(usual.ask(drain, list[Ceiling], self._end_s))
        except Refused as refused:
            return (Ceiling(num_workers=used.num_workers, reason=str(refused)),)

    def _known_of(self, used: UsedAlready, first: Trial, ceilings: tuple[Ceiling, ...]) -> Known:
        record, verdict = self._record, self._advice.verdict
        assert record.discovery is not None
        rate = first.samples_per_s
        peak = None if first.memory is None else first.memory.peak_bytes
        capacity = None if record.device is None else record.device.capacity_bytes
        on_gpu = used.device != "cpu"
        shares = [each.value for each in verdict.contributions if isinstance(each.value, float)]
        faults = max(
            (trial for trial in record.trials if trial.batch_size == self._size),
            key=share_of_faults,
            default=None,
        )
        counted = None if faults is None or faults.quality is None else faults.quality.page_faults
        return Known(
            faults_share=0.0 if faults is None else share_of_faults(faults),
            allocator="" if counted is None else counted.allocator,
            used=used,
            limit=verdict.limit,
            input_share=None if first.input_wait_s is None else input_share(first),
            idle_share=min(1.0, sum(shares)) if on_gpu and shares and sum(shares) > 0 else None,
            samples_per_s=0.0 if rate is None else rate.median,
            samples_per_epoch=record.discovery.primary.num_samples,
            ceilings=ceilings,
            batch_size=self._size,
            memory_limits=verdict.limit == "memory" or bool(self._refused_sizes()),
            accumulates=self._accumulates(used),
            peak_share=peak / capacity if peak and capacity else None,
            precision=record.discovery.precision,
        )

    def _refused_sizes(self) -> list[int]:
        """Sizes for which the memory was not enough."""
        refused = [each for each in self._record.trials if each.outcome == "out_of_memory"]
        return sorted({each.batch_size for each in refused})

    def _accumulates(self, used: UsedAlready) -> str:
        """How the smallest size that does not fit is reached, and how fast at most.

        By the times of the size that fits: of as many of its steps, all but one leave out the
        optimizer. The script steps where it is written, so that no process of it can be run so.
        """
        refused = self._refused_sizes()
        times = [
            trial.step_s.median
            for trial in self._record.trials
            if trial.batch_size == self._size and trial.step_s is not None
        ]
        assert self._record.discovery is not None
        own = self._record.discovery.native_batch_size
        wanted = own if own in refused else min(refused, default=0)
        if wanted <= self._size or not times:
            return ""
        num, share = -(-wanted // self._size), used.optimizer_share or 0.0
        step_s = min(times)
        least_s = step_s * (num - share * (num - 1))
        rate = num * self._size / least_s
        return (
            f"{wanted} samples do not fit at once; {num} batches of {self._size} with one update "
            f"take at least {format_seconds(least_s)}, at most {pad_digits(rate, 0.03)} samples/s: "
            f"computed from the steps that were timed at {self._size}, not run; divide the loss by "
            f"{num}, "
            "and call step() and zero_grad() after the last of them"
        )

    def _say_what_is_not_tried(self, found: Sequence[Candidate]) -> None:
        """Remedies in use, those that do not apply, and those that cannot help by their bound."""
        known = self._known
        assert known is not None
        for remedy in EVERY_REMEDY:
            if ALL not in self._names and remedy.name not in self._names:
                continue
            mine = [each for each in found if each.remedy is remedy]
            in_use, refused = remedy.in_use(known), remedy.refused(known)
            if in_use or refused or not mine:
                change = remedy.name if not mine else mine[0].words
                reason = in_use or refused or "there is no other setting of it"
                outcome: Outcome = "in use" if in_use else "not tried"
                self._add(TriedRemedy(name=remedy.name, change=change, outcome=outcome,
                                      numbers=NO_NUMBERS, reason=reason))  # fmt: skip
                continue
            for each in mine:
                if each.bound.factor < LEAST_GAIN:
                    reason = f"it cannot help: {each.bound.why}, so that it gains "
                    gain = each.bound.factor - 1
                    reason += f"at most {gain:.1%}" if gain > 0 else "nothing"
                    self._add(self._as_tried((each,), "not tried", reason=reason))

    def _started_anew(self, candidate: Candidate) -> TriedRemedy:
        """Workers that persist: no window shows them, for none begins an epoch.

        An epoch's steps and the start of its workers, anew over persistent, as they were timed.
        """
        known = self._known
        assert known is not None
        found, epoch_s = restarts_of(known), epoch_of(known)
        assert epoch_s is not None
        anew = spread_of([epoch_s + start_s for start_s in found.starts_s])
        kept = spread_of([epoch_s + start_s for start_s in found.persistent_s])
        assert anew is not None
        assert kept is not None
        gain = ratio_of(anew, kept)
        numbers = NumbersChecked(reason="no step changes")
        reason = "by the start of its workers, timed apart from the steps of an epoch"
        return self._as_tried(
            (candidate,), outcome_of(gain), gain=gain, numbers=numbers, reason=reason
        )

    def _one(self, what: Sequence[Candidate], *, num_left: int, anew: bool = False) -> TriedRemedy:
        """Tries one, or two together.

        Args:
            num_left: comparisons that share the time, this one and one of two together among them.
            anew: the script as it is starts anew as well.
        """
        words = " and ".join(each.words for each in what)
        wanted_s = self._comparison_s
        left_s = self._left_s()
        share_s = max(wanted_s, left_s / (num_left + (0 if anew else 1)))
        needed_s = wanted_s * (2 if anew else 1)
        if left_s < needed_s:
            left = f"{TOO_LITTLE_TIME}: {max(0.0, left_s):.0f} s"
            reason = f"{left}, and a comparison takes about {needed_s:.0f} s"
            return self._as_tried(what, "not tried", reason=reason)
        self._display.note(f"trying {words}: up to {min(left_s, share_s):.0f} s")
        # A process may start more slowly than the first one did.
        until_s = min(self._end_s, time.monotonic() + max(share_s, wanted_s + self._start_s))
        settings = _settings_of(what)
        try:
            measured = self._measured(settings, until_s, anew=anew)
        except Refused as refused:
            if settings.autocast == "float16" and refused.without_step:
                reason = "the scaler left out every step: a gradient was infinite"
                return self._as_tried(what, "wrong numbers", numbers=NOT_FINITE, reason=reason)
            return self._as_tried(what, "failed", reason=str(refused))
        except TimeOver:
            return self._as_tried(
                what, "not tried", reason="the time was over before its steps could be timed"
            )
        return self._judged(what, settings, measured)

    def _makes_room(self, tried: TriedRemedy) -> bool:
        """Whether memory bounds the size, and less of it is taken now, by numbers that train."""
        known, usual, peak = self._known, tried.usual_bytes, tried.peak_bytes
        assert known is not None
        if not known.memory_limits or usual is None or peak is None or not tried.numbers.finite:
            return False
        return peak < MAKES_ROOM * usual

    def _try_larger(self, candidate: Candidate, tried: TriedRemedy, *, num_left: int) -> None:
        """With a remedy that made room a larger size is looked for, and compared where one fits."""
        until_s = time.monotonic() + max(2 * self._comparison_s, self._left_s() / (num_left + 1))
        until_s = min(until_s, self._end_s)
        try:
            self._add(self._at_larger(candidate, tried.peak_bytes or 0, until_s))
        except (Refused, TimeOver) as none:
            over = isinstance(none, TimeOver)
            reason = "the time for larger sizes was over" if over else str(none)
            larger = self._as_tried((candidate,), "not tried", reason=reason)
            change = f"{larger.change} at larger sizes"
            self._add(msgspec.structs.replace(larger, change=change))

    def _at_larger(self, candidate: Candidate, peak_bytes: int, until_s: float) -> TriedRemedy:
        """A remedy at the fastest larger size that fits, beside the script as it is.

        Raises:
            Refused: none fits, or there is no time to compare it.
            TimeOver: there was none to find it.
        """
        settings = candidate.settings
        if until_s - time.monotonic() < self._comparison_s:
            raise Refused(NO_TIME)
        self._display.note(f"trying larger sizes with {candidate.words}")
        self._larger_peaks = {}
        if not self._has_room(self._room_bytes()):
            self._end_usual()  # what it holds would refuse sizes that fit
        process = self._process(settings)
        try:
            sizes = self._fastest_larger(process, peak_bytes, until_s)
        finally:
            self._end(process)
        none = Refused("none that was tried fits")
        for size in sizes:
            try:
                return self._compared_at(size, candidate, until_s)
            except Refused as refused:  # a fresh process may need more memory: then a smaller one
                none = refused
        raise none

    def _compared_at(self, size: int, candidate: Candidate, until_s: float) -> TriedRemedy:
        """A remedy at a larger size beside the script as it is.

        Raises:
            Refused: there is no time, or it does not fit after all.
            TimeOver: its steps took too long.
        """
        settings = candidate.settings
        if self._left_s() < self._comparison_s:
            raise Refused(f"batch {size} fits with it, and {NO_TIME} to compare it")
        self._display.note(f"trying {candidate.words} at batch {size}")
        until_s = min(self._end_s, max(until_s, time.monotonic() + self._comparison_s))
        measured = self._measured(settings, until_s, size=size)
        judged = self._judged((candidate,), settings, measured, size=size)
        if (judged.peak_bytes or 0) > self._room_bytes():
            peak = format_bytes(judged.peak_bytes or 0)
            raise Refused(
                f"batch {size} ran with it, and its peak of {peak} leaves too little free"
            )
        return judged

    def _room_bytes(self) -> float:
        """Memory that a size may take: the capacity less the margin of the run."""
        device = self._record.device
        assert device is not None
        return (1 - self._record.goal.margin) * device.capacity_bytes

    def _fastest_larger(self, process: Process, peak_bytes: int, until_s: float) -> list[int]:
        """The sizes that fit above the present one, the fastest first; each next is smaller."""
        process.start(until_s)
        process.ask(Begin(), dict[str, Any], until_s)
        self._warm(process, until_s)
        found = self._record.discovery
        assert found is not None
        most = min(found.primary.num_samples or MOST_LARGER * self._size, MOST_LARGER * self._size)
        multiples = Measurements.of(self._record).multiples

        def timed(size: int) -> Trial:
            trial = process.timed(
                size,
                window_s=WINDOW_S,
                num_warmup=1,
                deadline_s=until_s - time.monotonic(),
                until_s=until_s + STEP_END_S,
            )
            peak = None if trial.memory is None else trial.memory.peak_bytes
            if peak is not None:
                self._larger_peaks[size] = peak
            return trial

        return fastest_larger(
            timed,
            {self._size: peak_bytes},
            self._room_bytes(),
            allowed=lambda size: multiples.nearest(round_size(size), most),
            goes_on=lambda: process.lives and time.monotonic() < until_s,
        )

    def _measured(
        self, settings: Settings, until_s: float, *, anew: bool = False, size: int | None = None
    ) -> _Measured:
        """A comparison; in fresh processes once more where that helps one that ended.

        Args:
            size: with the remedy, where it is another one.
        """
        self._whole = bool(settings.order or settings.prefetch_factor)
        while True:
            process = self._process(settings)
            try:
                return self._compared(process, until_s, anew=anew, size=size or self._size)
            except Refused as refused:
                if not refused.again:
                    raise
                self._display.note(f"{refused}; {refused.again}")
                self._end_usual()  # it was started before, and would end so too
            finally:
                self._end(process)
                if self._usual is not None and not self._usual.lives:
                    self._end_usual()

    def _compared(self, process: Process, until_s: float, *, anew: bool, size: int) -> _Measured:
        """Windows of both sides, in turn where there is room for two processes."""
        if anew:
            self._end_usual()
        if not self._has_room(self._larger_peaks.get(size)):
            return self._one_after_the_other(process, until_s, size)
        usual = self._living_usual()
        process.start(until_s)
        process.ask(Begin(), dict[str, Any], until_s)
        self._warm(process, until_s, size)
        if anew:
            self._warm(usual, until_s)
        until_s = self._with_rounds(until_s)
        turns: list[Turn] = []
        number = 0
        while not is_enough(turns, self._wander):
            if number and time.monotonic() + 2 * self._turn_s > until_s:
                break
            number += 1
            sides = [(AS_IT_IS, usual), (WITH_REMEDY, process)]
            for side, each in sides if number % 2 else reversed(sides):
                at = size if side == WITH_REMEDY else self._size
                turns.append(Turn(side, each.number, number, self._window(each, at)))
        return _Measured(turns, self._usual_kept, process.ask(Watched(), Kept, until_s + 10))

    def _one_after_the_other(self, process: Process, until_s: float, size: int) -> _Measured:
        """The script as it is, with the remedy, and as it is once more: no two at a time."""
        turns: list[Turn] = []
        kept: dict[int, Kept] = {}
        third_s = (until_s - time.monotonic()) / 3
        for side in (AS_IT_IS, WITH_REMEDY, AS_IT_IS):
            self._end_usual()
            each = process if side == WITH_REMEDY else self._process(Settings())
            ends_s = time.monotonic() + third_s
            at = size if side == WITH_REMEDY else self._size
            try:
                each.start(ends_s)
                each.ask(Begin(), dict[str, Any], ends_s)
                self._warm(each, ends_s, at)
                for _ in range(ROUNDS_TO_CLAIM):
                    turns.append(Turn(side, each.number, None, self._window(each, at)))
                    if time.monotonic() > ends_s:
                        break
                kept[side] = each.ask(Watched(), Kept, ends_s + 10)
            finally:
                self._end(each)  # nothing else has room beside it
        return _Measured(turns, kept.get(AS_IT_IS), kept.get(WITH_REMEDY))

    def _judged(
        self,
        what: Sequence[Candidate],
        settings: Settings,
        measured: _Measured,
        *,
        size: int | None = None,
    ) -> TriedRemedy:
        """What the windows and the numbers say.

        Args:
            size: with the remedy, where it is another one.
        """
        turns = measured.turns
        sure = ratio(turns, self._wander)
        if sure is None:
            outcome, reason = self._without_a_step(turns)
            return self._as_tried(what, outcome, reason=reason)
        self._note_rate(turns)
        numbers = NO_NUMBERS
        assert self._known is not None
        if measured.usual is not None and measured.remedy is not None:
            late = any(name in settings.changes for name in IN_FORCE_LATE)
            numbers = checked(
                measured.usual,
                measured.remedy,
                begins_late=late,
                drops=self._known.used.drops and late,
            )
        other = "the order changes which samples meet" if settings.order else ""
        if size is not None:
            other = "the batches have another size"
        if other and numbers.finite:  # a loss that is no number needs no batch to compare it with
            numbers = NumbersChecked(reason=other)
        outcome, reason = said(turns, self._wander), ""
        num_rounds = len(rates_of(turns))
        if outcome == "cannot tell" and 0 < num_rounds < ROUNDS_TO_CLAIM:
            reason = f"there was time for {plural(num_rounds, 'round')} only"
        # A bound is of one remedy at the size of the run. Where the whole interval lies beyond it,
        # the bound is not exact, or something else changed.
        bound = what[0].bound if len(what) == 1 and size is None else NO_BOUND
        if outcome == "gain" and sure.low > BEYOND_BOUND * bound.factor:
            outcome = "cannot tell"
            reason = "it seems to gain more than it can, so that something else changed meanwhile"
        elif outcome == "gain" and sure.low <= bound.factor < sure.high:
            reason = (
                f"timed as {ratio_text(sure)}; x{bound.factor:.2f} is the most, for {bound.why}"
            )
            sure = within(sure, bound.factor)
        if not numbers.finite:
            outcome = "wrong numbers"
            reason = numbers.note or "the loss is not finite any more"
        elif measured.remedy is not None and measured.remedy.breaks and outcome != "gain":
            reason = f"graph break at {measured.remedy.breaks[0]}"
        elif settings.compile and measured.remedy is not None and not measured.remedy.compiled:
            reason = "torch.compile compiled nothing of it"
        return self._as_tried(
            what,
            outcome,
            gain=sure,
            rates=rates_of(turns),
            load=load_of(turns, self._wander),
            peak_bytes=_peak(turns, WITH_REMEDY),
            usual_bytes=_peak(turns, AS_IT_IS),
            numbers=numbers,
            reason=reason,
            size=size,
        )

    def _without_a_step(self, turns: Sequence[Turn]) -> tuple[Outcome, str]:
        """What is said where one side has no timed step, and why."""
        with_it = [turn.trial for turn in turns if turn.side == WITH_REMEDY]
        usual = [turn.trial.step_s for turn in turns if turn.side == AS_IT_IS]
        none = "no step of it ended within a window"
        one_size = len({turn.trial.batch_size for turn in turns}) == 1
        if not one_size or len(with_it) < 2 or not any(usual) or any(t.step_s for t in with_it):
            return "cannot tell", none
        # Each window had two steps to warm up and one to time, at most.
        least_s = self._latest_s(self._size) / (1 + NUM_WARMUP)
        least, as_it_is = format_seconds(least_s), format_seconds(self._step_s)
        return "slower", f"{none}: one takes more than {least}, and {as_it_is} as it is"

    def _as_tried(
        self,
        what: Sequence[Candidate],
        outcome: Outcome,
        size: int | None = None,
        **measured: Any,
    ) -> TriedRemedy:
        known = self._known
        assert known is not None
        place, line = place_of(what[0].remedy, known)
        bounds = [each.bound for each in what]
        factor = bounds[0].factor if len(what) == 1 else float("inf")
        measured.setdefault("numbers", NO_NUMBERS)
        if outcome == "gain" and size is None:
            measured |= self._as_diff(what, known)
        elif outcome == "gain":
            measured["no_diff"] = "the size changes with it"
        change = " and ".join(each.words for each in what)
        code = tuple(line for each in what for line in each.remedy.code(known, each.settings))
        if size is not None:
            change += f" at batch {size}"
            code += (f"DataLoader(..., batch_size={size})",)
        return TriedRemedy(
            name="+".join(each.remedy.name for each in what),
            change=change,
            outcome=outcome,
            batch_size=size,
            bound=factor if factor < float("inf") else None,
            why_bound=bounds[0].why if len(what) == 1 else "",
            place=place if len(what) == 1 else None,
            line=line if len(what) == 1 else "",
            code=code,
            **measured,
        )

    def _as_diff(self, what: Sequence[Candidate], known: Known) -> dict[str, str]:
        """All lines of it as a diff, those of the size among them; or why there is none."""
        record = self._record
        try:
            edits = edits_of(_settings_of(what), known.used, record.script.path)
            with contextlib.suppress(NoDiffError):
                edits += edits_of_size(record, self._advice)
            return {"diff": diff_of(edits)}
        except NoDiffError as none:
            return {"no_diff": str(none)}

    def _best_of_each(
        self, gained: Sequence[tuple[Candidate, float]]
    ) -> list[tuple[Candidate, float]]:
        """The best of several settings of one remedy."""
        best: dict[str, tuple[Candidate, float]] = {}
        for candidate, gain in gained:
            name = candidate.remedy.name
            if name not in best or best[name][1] < gain:
                best[name] = (candidate, gain)
        return list(best.values())

    # processes -------------------------------------------------------------------------------

    def _process(self, settings: Settings) -> Process:
        assert self._store is not None
        writer = RecordWriter(self._record, self._store, keep=False)
        options = self._options
        target = choose_target(options.device, options.memory_limit_bytes)
        pool = ChangedWorkers(
            options, target, writer, self._display, settings,
            restarts=self._restarts, left_s=self._left_s(),
        )  # fmt: skip
        process = Process(pool, self._num_processes)
        self._num_processes += 1
        self._pools.append(process)
        return process

    def _living_usual(self) -> Process:
        if self._usual is None:
            usual = self._process(Settings())
            try:
                usual.start(self._end_s)
                usual.ask(Begin(), dict[str, Any], self._end_s)
            except (Refused, TimeOver):
                self._end(usual)  # or the next comparison would take it for one that stands still
                raise
            self._usual = usual
        return self._usual

    def _end_usual(self) -> None:
        if self._usual is not None:
            self._end(self._usual)
            self._usual = None

    def _end(self, process: Process) -> None:
        process.end()
        self._pools = [each for each in self._pools if each is not process]

    def _end_all_processes(self) -> None:
        for process in list(self._pools):
            self._end(process)

    def _end_all(self) -> None:
        self._end_all_processes()
        if self._store is not None:
            self._store.close()

    def _has_room(self, needed_bytes: float | None = None) -> bool:
        """Whether a second process fits into the memory beside the script as it is.

        Args:
            needed_bytes: of the second; `None` where it takes about as much as the first.
        """
        known, device = self._known, self._record.device
        assert known is not None
        share = known.peak_share
        if share is None or device is None:
            return True
        peak = share * device.capacity_bytes
        needed = ROOM_FOR_TWO * peak if needed_bytes is None else needed_bytes
        if device.kind == "cpu":
            available = host.available_bytes()
            mine = 0.0 if self._usual is not None else peak  # else it is taken already
            return available is None or available[0] >= mine + needed
        return peak + needed <= device.capacity_bytes

    # time ------------------------------------------------------------------------------------

    @property
    def _window_s(self) -> float:
        return min(LONGEST_WINDOW_S, max(WINDOW_S, STEPS_A_WINDOW * self._step_s))

    @property
    def _turn_s(self) -> float:
        """Seconds of a turn with its warm-up, by those that were made."""
        return median(self._turns_s) if self._turns_s else 2 * self._window_s + 2 * self._step_s

    @property
    def _comparison_s(self) -> float:
        """Seconds that one comparison takes at the least, the start of its process included."""
        return self._start_s + 2 * (1 + LOOKS[0]) * self._turn_s

    def _with_rounds(self, until_s: float) -> float:
        """When a comparison ends: later than planned where its start took the time of rounds."""
        needed_s = 2 * LOOKS[0] * self._turn_s
        return min(self._end_s, max(until_s, time.monotonic() + needed_s))

    def _left_s(self) -> float:
        return max(0.0, self._end_s - time.monotonic())

    def _warm(self, process: Process, until_s: float, size: int | None = None) -> None:
        """First steps load libraries, compile and fill caches: no window counts them."""
        process.timed(
            size or self._size,
            window_s=WINDOW_S,
            num_warmup=3,
            deadline_s=max(1.0, until_s - time.monotonic()),
            until_s=until_s + STEP_END_S,
        )

    def _window(self, process: Process, size: int) -> Trial:
        """One turn. It waits for no undisturbed steps: what disturbs one side disturbs both."""
        begun_s = time.monotonic()
        trial = process.timed(
            size,
            window_s=self._window_s,
            num_warmup=NUM_WARMUP,
            whole=self._whole,
            deadline_s=self._latest_s(size),
            until_s=self._end_s + STEP_END_S,
        )
        self._turns_s.append(time.monotonic() - begun_s)
        return trial

    def _latest_s(self, size: int) -> float:
        """Seconds after which a window ends with what it has."""
        return LATEST * self._window_s + 3 * self._step_s * size / self._size

    # what is kept ----------------------------------------------------------------------------

    def _note_rate(self, turns: Sequence[Turn]) -> None:
        rates = [
            turn.trial.samples_per_s.median
            for turn in turns
            if turn.side == AS_IT_IS and turn.trial.samples_per_s is not None
        ]
        middle: Spread | None = spread_of(rates)
        if middle is not None:
            self._change(samples_per_s=middle.median)

    def _add(self, tried: TriedRemedy) -> None:
        self._change(tried=(*self._remedies.tried, tried))

    def _change(self, **changes: Any) -> None:
        spent_s = time.monotonic() - self._begun_s
        self._remedies = msgspec.structs.replace(self._remedies, spent_s=spent_s, **changes)
        store.save(self._folder, self._remedies)


NOT_FINITE = NumbersChecked(finite=False)
NO_NUMBERS = NumbersChecked(reason="it was not timed")


def _settings_of(what: Sequence[Candidate]) -> Settings:
    settings = what[0].settings
    for other in what[1:]:
        settings = settings.and_(other.settings)
    return settings


def _peak(turns: Sequence[Turn], side: int) -> int | None:
    peaks = [
        turn.trial.memory.peak_bytes
        for turn in turns
        if turn.side == side and turn.trial.memory is not None
    ]
    return max(peaks, default=None)
