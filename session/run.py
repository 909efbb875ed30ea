"""`batchadvisor run`: find the loop, ask what to try next, try it, keep the record, advise."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec

from ..advisor.advise import advise
from ..advisor.measured.energy import SHORTEST_S
from ..advisor.measured.measurements import Measurements
from ..advisor.measured.memory_prior import predicted_bytes
from ..advisor.measured.thresholds import BUDGET_SPENT
from ..advisor.search.cost import end_s
from ..advisor.search.next_trial import Done, expected, next_trial
from ..errors import BatchAdvisorError, RunError, UsageError
from ..probes.distributed.rank_group import RankGroup
from ..probes.process.endings import WorkerGone
from ..probes.process.interrupts import cause_of, held_back
from ..probes.process.messages import Raised
from ..probes.process.orders import RunTrial
from ..probes.process.worker_like import WorkerLike
from ..probes.process.worker_listener import TimeOver
from ..probes.source.named_size import SizePlace
from ..probes.windows.clean_steps import with_stops
from ..records import (
    Advice,
    DeviceInfo,
    Discovery,
    FileTouched,
    RunRecord,
    Trial,
    TrialRequest,
    traits_of,
)
from ..reports.words.wording import plural
from ..units import format_seconds
from .communication import measure_communication
from .display import Display
from .edit import check_edit
from .memory_explained import explain_memory, record_step
from .prior import predict_memory
from .recording.record_writer import RecordWriter
from .recording.store import read_record
from .recording.traces import with_profile
from .setup.first_record import first_record, store_of
from .setup.options import (
    RunOptions,
    check_against_script,
    check_energy_device,
    check_goal,
    check_script,
)
from .setup.target import choose_target
from .workers.arrival import check_arrival
from .workers.choice import workers_for
from .workers.failures import failed_trial, nothing_fits, tool_failed
from .workers.in_turn import WorkersInTurn
from .workers.ranks import rank_target
from .workers.size_in_script import SizeInScriptError
from .workers.template_workers import only_as_written, place_before, runs_only_as_written


class NoTimeLeftError(RunError):
    """The script was to be started once for each size, and the budget has no time for it."""


class RunResult(msgspec.Struct, frozen=True):
    """The result of a run.

    Attributes:
        folder: the run's folder.
        error: why the run failed after it had begun; the record is valid all the same.
    """

    record: RunRecord
    advice: Advice
    folder: Path
    error: BatchAdvisorError | None = None


def run(options: RunOptions, display: Display, group: RankGroup | None = None) -> RunResult:
    """Runs a whole search.

    Args:
        group: the ranks of a job, which then run every trial in lock-step.

    Raises:
        BatchAdvisorError: nothing could be measured.
    """
    with Run(options, display, group=group) as current:
        return current.search()


def discover(
    options: RunOptions, display: Display, group: RankGroup | None = None
) -> tuple[Discovery, DeviceInfo, tuple[FileTouched, ...]]:
    """Finds the training loop and stops: `--dry-run`. Nothing of ours is kept.

    Returns:
        The loop, the device, and the files that the script touched by then.

    Raises:
        BatchAdvisorError: it was not found.
    """
    with Run(options, display, keep=False, group=group) as current:
        current.look()
        current.workers.end()
        record = current.writer.record
        assert record.discovery is not None
        assert record.device is not None
        return record.discovery, record.device, record.files


class Run:
    """One run: checks what was asked for, then tries size after size.

    Args:
        keep: the folder stays when the run is over.

    Raises:
        UsageError: it cannot work as asked for.
    """

    def __init__(
        self,
        options: RunOptions,
        display: Display,
        *,
        keep: bool = True,
        group: RankGroup | None = None,
    ) -> None:
        check_goal(options.goal)
        if not (options.module or options.traits.in_this_process):
            check_script(options.script_path)
        target = (
            choose_target(options.device, options.memory_limit_bytes)
            if group is None
            else rank_target(options.device, options.memory_limit_bytes, group.rank)
        )
        check_energy_device(target.device, options.goal)
        resumed = read_record(options.resume) if options.resume is not None else None
        self._options = options
        self._display = display
        self._keep = keep
        self._has_ranks = group is not None
        self._by_loader: tuple[RunRecord, SizeInScriptError] | None = None
        self._script_traceback = ""
        self._store = store_of(options, resumed, keep=keep)
        with self._nothing_left_of_a_start():
            self.writer = RecordWriter(first_record(options, resumed), self._store, keep=keep)
            self._workers_for = partial(
                workers_for, target=target, writer=self.writer, display=display, group=group
            )
            self.workers = self._workers_for(options)

    def __enter__(self) -> Run:  # noqa: PYI034  Self needs Python 3.11
        with self._nothing_left_of_a_start():
            self._display.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        try:
            with contextlib.suppress(RunError):  # a full disk was said before
                self.workers.close()
            if error is not None and self.writer.record.state == "running":
                self._close_the_record(error)
            if isinstance(error, BatchAdvisorError):  # nothing else will be shown that lists them
                error.files = self.writer.record.files
        finally:
            self._display.close()
            wrong = isinstance(error, UsageError) and not self.writer.record.trials
            nothing = wrong or not self._store.record_path.exists()
            named = str(self._store.log_path) in str(error)  # what the user is told to read stays
            if not named and (not self._keep or (nothing and self._options.resume is None)):
                self._store.discard()
            self._store.close()

    def _close_the_record(self, error: BaseException) -> None:
        """Nobody goes on with this run: an error that came past `search`, which closes it."""
        with contextlib.suppress(RunError):
            if isinstance(error, KeyboardInterrupt):
                self._interrupted(error)
            else:
                reason = str(tool_failed(error).what).rstrip(".")
                self.writer.change(state="failed", stop_reason=reason)

    def _why_no_answer(self) -> BatchAdvisorError | None:
        """Why a run that was not cut has no answer, if it has none."""
        record = self.writer.record
        only_own = runs_only_as_written(record, self._options)
        if only_own is not None and not Measurements.of(record).ran:
            return only_own
        return nothing_fits(record, self._script_traceback, self._store.log_path) or only_own

    def _interrupted(self, pressed: KeyboardInterrupt) -> None:
        self.writer.change(state="interrupted", stop_reason=f"interrupted by {cause_of(pressed)}")

    @contextlib.contextmanager
    def _nothing_left_of_a_start(self) -> Iterator[None]:
        """For what comes before `__exit__` is sure to: Ctrl-C, or any error."""
        try:
            yield
        except BaseException:
            self._display.close()
            self._store.discard()
            self._store.close()
            raise

    @property
    def _needs_start(self) -> bool:
        """Whether the loop, or on resuming the place of its size, is not known yet."""
        found = self.writer.record.discovery
        elsewhere = found is not None and found.traits.process_per_size
        return found is None or (elsewhere and not self._options.traits.process_per_size)

    def look(self) -> None:
        """Finds the training loop; where no loader feeds it, the sizes go in where they are set.

        Raises:
            BatchAdvisorError: it was not found.
        """
        before = place_before(self.writer.record, self._options)
        try:
            if before is not None:
                self._start_through(before, f"{before.text} sets the sizes")
            else:
                self.workers.start()
        except SizeInScriptError as known:
            if known.doubt:
                self.writer.change(doubts=(*self.writer.record.doubts, known.doubt))
            self._start_through(known.place, known.said)

    def _start_through(self, place: SizePlace, said: str, *, until_s: float | None = None) -> None:
        """From here on the script is started once for each size, whatever could be steered.

        Args:
            until_s: `time.monotonic()` at which the first process ends; `None` waits.
        """
        self.workers.close()
        self._display.note(said)
        self._options = self._options.through(place, forced=True)
        self.workers = self._workers_for(self._options)
        self.workers.until_s = until_s
        self.workers.start()

    @property
    def _may_start_again(self) -> bool:
        """Whether there is time to start the script for two sizes."""
        found = self.writer.record.discovery
        return found is not None and self._left_s() > 2 * found.setup_s

    @property
    def _is_alone(self) -> bool:
        """Whether no ranks train: through another door nobody would steer them."""
        distribution = self.writer.record.distribution
        ranks = () if distribution is None else distribution.ranks
        return not self._has_ranks and len(ranks) < 2

    def _goes_on_through(self, known: SizeInScriptError) -> None:
        """Begins again, for a script that takes no size but its own from its loader.

        Raises:
            NoTimeLeftError: there is no time for it.
        """
        if not self._may_start_again:
            raise NoTimeLeftError(
                known.what,
                f"{known.place.text} sets the size, and there was no time left to start the script "
                "once for each: continue with --resume and a larger --budget.",
            )
        before = self.writer.record
        self._by_loader = before, known
        self.writer.change(trials=(), discovery=None)
        self._store.set_aside(before.trials)
        try:
            until_s = time.monotonic() + self._left_s()
            self._start_through(known.place, known.said, until_s=until_s)
        except TimeOver as over:
            what = "the time was over before the script came to its training loop again."
            remedy = "Continue with --resume and a larger --budget."
            raise NoTimeLeftError(what, remedy) from over
        self._display.note(plan_of(self.writer.record, self._options.budget_share))

    def _back_to_the_loader(self, failure: BatchAdvisorError | None) -> BatchAdvisorError | None:
        """What its loader gave stands, where no size arrived through the place either."""
        trials = self.writer.record.trials
        arrived = {trial.arrived_batch_size for trial in trials if trial.ran}
        if self._by_loader is None or len(arrived) > 1:
            self._store.forget_aside()
            return failure
        before, known = self._by_loader
        self._store.put_back(trials)
        self.writer.change(trials=before.trials, discovery=before.discovery)
        if failure is None:
            return None
        tried = f"{known.place.text} was tried instead: {failure.what} {failure.remedy}"
        return RunError(known.what, tried)

    def search(self) -> RunResult:
        """Tries size after size until the advisor has enough."""
        writer = self.writer
        error: BatchAdvisorError | None = None
        is_spent = False
        try:
            writer.change(state="running")
            if self._needs_start:
                self.look()
            check_against_script(writer.record)
            writer.search_begins()
            share = self._options.budget_share
            self._display.note(plan_of(writer.record, share))
            predict_memory(self.workers, writer, self._display, share)
            done = self._trials()
            measure_communication(self.workers, self.writer, self._display)
            recorded = record_step(self.workers, self.writer)
            explain_memory(self.workers, self.writer, self._display, recorded)
            check_edit(self.workers, self.writer, self._options, last=True)
            self.workers.end()  # its last words belong to the record that is returned
            self.workers.note_early_refusal()
            self._store.forget_aside()
            writer.change(state="finished", stop_reason=done.reason)
        except KeyboardInterrupt as pressed:
            with held_back():  # a second press ends us at once, but not with a wrong record
                self._back_to_the_loader(None)
                self._interrupted(pressed)
            self.workers.end()
            return self._result()
        except BatchAdvisorError as failure:
            is_spent = isinstance(failure, NoTimeLeftError)
            error = self._back_to_the_loader(failure)
        except Exception as fault:  # noqa: BLE001  ours; what was measured is kept
            error = self._back_to_the_loader(tool_failed(fault))
        error = error or self._why_no_answer()
        if error is not None:
            with contextlib.suppress(RunError):  # a full disk is said once
                why = BUDGET_SPENT if is_spent else error.what.rstrip(".")
                writer.change(state="failed", stop_reason=why)
            if not Measurements.of(writer.record).ran:
                raise error
        return self._result(error)

    def _trials(self) -> Done:
        """Makes trial after trial until the advisor has enough.

        Raises:
            BatchAdvisorError: the sizes do not arrive.
        """
        writer = self.writer
        while True:
            step = next_trial(writer.record)
            is_last = isinstance(step, Done)
            elsewhere = only_as_written(writer.record, self._options, is_last=is_last)
            if elsewhere is not None and self._is_alone:
                self._goes_on_through(elsewhere)
                continue
            if isinstance(step, Done):
                return step
            if step.purpose == "confirm" and step.fresh_process:
                check_edit(self.workers, writer, self._options, last=False)
            if not self._one(step) and step.purpose == "search":
                return Done(BUDGET_SPENT)
            try:
                check_arrival(writer, self._options)
            except SizeInScriptError as known:
                if not self._is_alone:
                    raise
                self._goes_on_through(known)

    def _result(self, error: BatchAdvisorError | None = None) -> RunResult:
        """The result of the run."""
        record = self.writer.record
        if self._store.problem:
            self._display.note(f"event files for TensorBoard: {self._store.problem}")
        return RunResult(record, advise(record), self._store.folder, error)

    def _one(self, request: TrialRequest) -> bool:
        """Runs one trial and puts it into the record, whatever comes of it.

        Returns:
            Whether there was time for it.
        """
        record = self.writer.record
        ordinal = len(record.trials)
        left_s = max(0.0, record.goal.budget_s - record.search_s)
        self._display.trial(request, f"{left_s:.0f} s of the budget left")
        started_s = time.monotonic()
        self.workers.until_s = started_s + self._left_s()
        try:
            trial = self._run(self.workers.ready_for(request), request, ordinal)
        except KeyboardInterrupt as pressed:
            gone = WorkerGone("interrupted", cause_of(pressed))
            self._add(self._failed_trial(request, ordinal, gone, started_s))
            raise
        except TimeOver:
            self.workers.end()
            self.writer.change()  # the time is spent, so that no other trial is asked for
            self._display.note("the time was over before the fresh process was ready")
            return False
        except WorkerGone as over:
            if self.workers.may_restart(over):
                return True
            if isinstance(over.message, Raised):
                self._script_traceback = over.message.traceback
            self.workers.end()
            trial = self._failed_trial(request, ordinal, over, started_s)
        self._add(trial)
        return True

    def _run(
        self, worker: WorkerLike | WorkersInTurn, request: TrialRequest, ordinal: int
    ) -> Trial:
        goal = self.writer.record.goal
        order = order_of(
            request,
            ordinal,
            self.writer.record,
            brief=self.workers.restarts.brief,
            left_out=self.workers.restarts.left_out,
            deadline_s=self._left_s(),
        )
        since_s, since_cpu_s = time.monotonic(), time.process_time()
        self.workers.was_stopped()  # what happened before the trial
        result = worker.ask(order)
        trial, steps = result.trial, result.steps
        if self.workers.was_stopped():
            trial = with_stops(trial)
        if not self._options.traits.in_this_process:  # whose steps run in this very process
            cpu_s, lasted_s = time.process_time() - since_cpu_s, time.monotonic() - since_s
            trial = msgspec.structs.replace(trial, tool_cpu_pct=100 * cpu_s / lasted_s)
        if goal.profile and request.kind == "timed" and request.purpose == "search":
            trial = trial if request.profile else _without_profile(trial)
        self._store.append([{"trial": ordinal, **msgspec.to_builtins(step)} for step in steps])
        if self.workers.watch is not None:
            trial = self.workers.watch.into(trial, self._store)
        self.workers.num_measured += trial.ran
        if trial.outcome in ("no_step", "out_of_memory"):
            self.workers.end()
        return with_profile(trial, self._store.folder)

    def _left_s(self) -> float:
        """Seconds that a trial may take, a fresh process's start included: the budget's rest."""
        return max(0.0, end_s(self.writer.record.goal.budget_s) - self.writer.search_s)

    def _failed_trial(
        self, request: TrialRequest, ordinal: int, gone: WorkerGone, started_s: float
    ) -> Trial:
        worker, lasted_s = self.writer.record.num_workers_started - 1, time.monotonic() - started_s
        return failed_trial(request, gone, ordinal=ordinal, worker=worker, elapsed_s=lasted_s)

    def _add(self, trial: Trial) -> None:
        if trial.kind != "turns" and trial.says_of_size:
            measurements = Measurements.of(self.writer.record)
            expected = predicted_bytes(measurements, trial.batch_size)
            trial = msgspec.structs.replace(trial, predicted_bytes=expected)
        self.writer.add_trial(trial)
        self._display.trial_done(trial)


def _without_profile(trial: Trial) -> Trial:
    reason = "left out: the budget has no time for it"
    return msgspec.structs.replace(trial, unavailable={**trial.unavailable, "profile": reason})


# How long and how precisely one trial is measured.

CPU_PRECISION = 0.05
GPU_PRECISION = 0.02
"""Relative half-width of the median's interval at which timing stops. On an H100, samples/s came
within 2 % of a bare loop's with it (bench/results/gpu-probes_nvidia-h100-80gb-hbm3_2026-11-26.txt).
"""
MIN_SAMPLE_S = 0.02
"""Steps shorter than this are averaged in groups, except where only memory counts."""
MAX_TIMED_S = 30.0
TIMED_SHARE = 1 / 16
"""A timed phase takes at most so long, and at most this share of the budget."""
PRECISE_SHARE = 1 / 3
"""Where a precision was asked for, the timed phases of all sizes take at most this share."""

ENERGY_S = 1.25 * SHORTEST_S
"""Seconds for which each size is timed where its energy counts, whatever the precision by then: a
quarter more than the shortest window whose energy is told."""


def order_of(
    request: TrialRequest,
    ordinal: int,
    record: RunRecord,
    *,
    brief: bool,
    deadline_s: float,
    left_out: str = "",
) -> RunTrial:
    """Makes the order for a trial.

    Args:
        record: of the run so far.
        brief: the script has few steps to give.
        deadline_s: seconds that the whole trial may take.
        left_out: why only time and memory are measured; empty where all is.
    """
    goal = record.goal
    on_cpu = record.device is None or record.device.kind == "cpu"
    time_limit_s = max(1.0, min(MAX_TIMED_S, goal.budget_s * TIMED_SHARE))
    precision = CPU_PRECISION if on_cpu else GPU_PRECISION
    if goal.precision is not None:
        precision = goal.precision
        each_s = goal.budget_s * PRECISE_SHARE / max(1, len(goal.sizes))
        time_limit_s = max(time_limit_s, min(MAX_TIMED_S, each_s))
    min_time_s = 0.0
    if goal.kind == "energy":
        min_time_s = time_limit_s = ENERGY_S
    return RunTrial(
        request=request,
        ordinal=ordinal,
        precision=precision,
        min_sample_s=0.0 if goal.kind == "memory" or brief else MIN_SAMPLE_S,
        min_time_s=min_time_s,
        brief=brief,
        time_limit_s=time_limit_s,
        deadline_s=deadline_s,
        left_out=left_out,
    )


# The plan of a search, in a line for people.


def plan_of(record: RunRecord, budget_share: float = 1.0) -> str:
    """Says what the search will cost, before it starts.

    Args:
        budget_share: as in RunOptions.
    """
    estimate = expected(record)
    primary = record.discovery.primary if record.discovery is not None else None
    where = f"steering the loader at {primary.place}; " if primary and primary.place else ""
    traits = traits_of("loader") if record.discovery is None else record.discovery.traits
    if traits.process_per_size:
        where = "one process for each size; "
    elif not traits.steers_loader and primary is not None:
        where = f"sizes get in {primary.steered}; "
    left = format_seconds(max(0.0, record.goal.budget_s - record.search_s))
    sizes = plural(estimate.num_sizes, "size")
    if estimate.least < estimate.num_sizes:
        sizes = f"{estimate.least} to {sizes}"
    if not estimate.fits and estimate.window_s is not None:
        one = "process" if traits.process_per_size else "window"
        text = f"one {one} takes about {format_seconds(estimate.window_s)}: "
        fit = "fits" if estimate.num_sizes == 1 else "fit"
        text += f"{sizes} {fit} in the {left} that are left"
        if estimate.enough_s is not None and len(record.goal.sizes) != 1:
            text += f"; to compare two, use --budget {round(estimate.enough_s / budget_share)}s"
        return where + text
    return (
        f"{where}about {sizes} and "
        f"{plural(estimate.num_steps, 'optimizer step')}, at most {left} more"
    )
