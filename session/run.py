"""`batchadvisor run`: find the loop, ask what to try next, try it, keep the record, advise."""

from __future__ import annotations

import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Protocol

import msgspec

from ..advisor.advise import advise
from ..advisor.facts import failed, ran
from ..advisor.search import Done, expected_steps, next_trial
from ..errors import BatchAdvisorError, UsageError
from ..probes.messages import Progress, Raised, WorkOrder
from ..probes.supervisor import Scratch, Worker, WorkerGone, worker_environment
from ..records import (
    Advice,
    DeviceInfo,
    Discovery,
    Fault,
    RunRecord,
    ScriptInfo,
    TailCheck,
    Trial,
    TrialRequest,
)
from ..units import format_seconds
from .counters import GpuWatch
from .failures import error_of, nothing_fits
from .options import RunOptions, check_goal, check_script, run_folder
from .store import RunStore, read_record
from .target import Target, choose_target
from .traces import with_profile

DISCOVERY_SILENCE = 10.0
"""Before the loop is found a script may be silent this many times longer: data, downloads."""
CPU_PRECISION = 0.05
GPU_PRECISION = 0.02
"""Relative half-width of the median's interval at which timing stops."""
MIN_SAMPLE_S = 0.02
"""Steps shorter than this are averaged in groups, except where only memory counts."""
BATCH_CAPS = (8, 1)
"""Sizes with which discovery is tried again when the script's own does not fit."""
MAX_RESTARTS = 2
"""New processes for a script that ends in the middle of a trial."""


class Display(Protocol):
    """Shows what goes on; see reports/progress.py."""

    def start(self) -> None: ...
    def discovering(self, num_steps: int) -> None: ...
    def trial(self, request: TrialRequest, expected: str) -> None: ...
    def update(
        self, phase: str, batch_size: int | None, num_steps: int, step_s: float | None
    ) -> None: ...
    def trial_done(self, trial: Trial) -> None: ...
    def note(self, text: str) -> None: ...
    def close(self) -> None: ...


class RunResult(msgspec.Struct, frozen=True):
    """What a run leaves.

    Attributes:
        folder: the run's folder.
        error: why the run failed after it had begun; the record is valid all the same.
    """

    record: RunRecord
    advice: Advice
    folder: Path
    error: BatchAdvisorError | None = None


def run(options: RunOptions, display: Display) -> RunResult:
    """Runs a whole search.

    Raises:
        BatchAdvisorError: nothing could be measured.
    """
    with Run(options, display) as one:
        return one.search()


def discover(options: RunOptions, display: Display) -> tuple[Discovery, DeviceInfo]:
    """Finds the training loop and stops: `--dry-run`. Nothing is kept.

    Raises:
        BatchAdvisorError: it was not found.
    """
    with Run(options, display, keep=False) as one:
        one.start_worker()
        assert one.record.discovery is not None
        assert one.record.device is not None
        return one.record.discovery, one.record.device


class Run:
    """One run: the record, the folder, and at most one worker.

    Args:
        keep: the folder stays when the run is over.
    """

    def __init__(self, options: RunOptions, display: Display, *, keep: bool = True) -> None:
        check_goal(options.goal)
        if not options.module:
            check_script(options.script)
        self._options = options
        self._display = display
        self._target: Target = choose_target(options.device, options.memory_limit_bytes)
        resumed = read_record(options.resume) if options.resume is not None else None
        self._store = RunStore(self._folder(resumed))
        self._keep = keep
        self._scratch = Scratch()
        self._worker: Worker | None = None
        self._watch: GpuWatch | None = None
        self._started_s = time.monotonic()
        self._search_started_s: float | None = None
        self._restarts = 0
        self._batch_cap: int | None = None
        self._measured_in_worker = 0
        self._script_traceback = ""
        self.record = self._first_record(resumed)
        self._elapsed_before_s = self.record.elapsed_s
        self._search_before_s = self.record.search_s

    def __enter__(self) -> Run:  # noqa: PYI034  Self needs Python 3.11
        self._display.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        self._end_worker()
        if self._watch is not None:
            self._watch.close()
        self._scratch.remove()
        self._display.close()
        usage = isinstance(error, UsageError)
        if not self._keep or (usage and self._options.resume is None and not self.record.trials):
            self._store.discard()

    # the loop --------------------------------------------------------------------------------

    def search(self) -> RunResult:
        """Tries size after size until the advisor has enough."""
        error: BatchAdvisorError | None = None
        try:
            self._save()
            if self.record.discovery is None:
                self.start_worker()
            self._search_started_s = time.monotonic()
            self._display.note(_plan(self.record))
            while not isinstance(step := next_trial(self.record), Done):
                self._one(step)
            self._end_worker()  # its last words belong to the record that is returned
            self._change(state="finished", stop_reason=step.reason)
        except KeyboardInterrupt:
            self._end_worker()
            self._change(state="interrupted", stop_reason="interrupted by Ctrl-C")
        except BatchAdvisorError as found:
            error = found
            self._change(state="failed", stop_reason=found.what)
            if not ran(self.record):
                raise
        error = error or nothing_fits(self.record, self._script_traceback)
        if error is not None and not ran(self.record):
            self._change(state="failed", stop_reason=error.what)
            raise error
        return RunResult(self.record, advise(self.record), self._store.folder, error)

    def _one(self, request: TrialRequest) -> None:
        """Runs one trial and puts it into the record, whatever comes of it."""
        if self._worker is None or request.fresh_process:
            self.start_worker()
        assert self._worker is not None
        ordinal = len(self.record.trials)
        self._display.trial(request, self._expected())
        started_s = time.monotonic()
        try:
            trial, steps = self._worker.run(
                request,
                ordinal,
                precision=self._precision(),
                min_sample_s=MIN_SAMPLE_S if self.record.goal.kind != "memory" else 0.0,
                time_limit_s=max(1.0, min(30.0, self.record.goal.budget_s / 8)),
            )
        except WorkerGone as gone:
            if self._may_restart(gone):
                return
            if isinstance(gone.message, Raised):
                self._script_traceback = gone.message.traceback
            trial = _failed_trial(request, ordinal, self._worker.order.worker, gone)
            trial = msgspec.structs.replace(trial, elapsed_s=time.monotonic() - started_s)
            steps = ()
            self._note_worker()
        except KeyboardInterrupt:
            interrupted = WorkerGone("interrupted", "Ctrl-C")
            worker = self._worker.order.worker
            self._add(_failed_trial(request, ordinal, worker, interrupted))
            raise
        if self._watch is not None:
            trial = self._watch.into(trial, self._store)
        trial = with_profile(trial, self._store.folder)
        self._store.append([{"trial": ordinal, **msgspec.to_builtins(one)} for one in steps])
        self._measured_in_worker += trial.ran
        if trial.outcome == "no_step":
            self._end_worker()
        self._add(trial)

    def _may_restart(self, gone: WorkerGone) -> bool:
        """A script that ended by itself, after trials that it completed, is started again."""
        if gone.outcome != "script_ended" or not self._measured_in_worker:
            return False
        if self._restarts >= MAX_RESTARTS:
            return False
        self._restarts += 1
        self._display.note(f"{gone.detail}; starting it again")
        self._note_worker()
        return True

    # workers ---------------------------------------------------------------------------------

    def start_worker(self) -> None:
        """A fresh process of the script, up to its training loop.

        Raises:
            BatchAdvisorError: the loop was not found.
        """
        self._end_worker()
        self._set_cap()
        while True:
            worker = self._spawn()
            try:
                discovery, device = worker.discover()
            except WorkerGone as gone:
                self._note_worker()
                caps = [
                    one for one in BATCH_CAPS if self._batch_cap is None or one < self._batch_cap
                ]
                if gone.outcome == "out_of_memory" and caps:
                    self._batch_cap = caps[0]
                    self._display.note(f"out of memory; trying again with batches of {caps[0]}")
                    continue
                self._fault(gone, worker)
                raise error_of(gone, self._options, worker.log, self._batch_cap) from None
            except KeyboardInterrupt:
                self._end_worker()
                raise
            break
        self._measured_in_worker = 0
        if self.record.discovery is None:
            self._change(discovery=discovery, device=device, versions=worker.versions)
            self._watch = GpuWatch.for_device(device)
        if self._watch is not None:
            self._watch.follow(worker.pid)

    def _spawn(self) -> Worker:
        options = self._options
        number = self.record.num_workers_started
        self._change(num_workers_started=number + 1)
        folder = self._store.folder.resolve()
        order = WorkOrder(
            script=options.script,
            arguments=options.arguments,
            module=options.module,
            worker=number,
            device=self._target.device,
            memory_limit_bytes=options.memory_limit_bytes,
            data_limit_bytes=self._target.data_limit_bytes,
            run_folder=str(folder),
            scratch_folder=str(self._scratch.path),
            loader=options.loader,
            batch_cap=self._batch_cap,
            profile_schedule=options.profile_schedule,
            with_stack=options.with_stack,
        )
        self._worker = Worker(
            order,
            log=self._store.log_path,
            environment=worker_environment(self._target.device, self._scratch.path),
            silence_s=options.silence_s,
            setup_s=options.silence_s * DISCOVERY_SILENCE,
            on_progress=self._on_progress,
        )
        return self._worker

    def _set_cap(self) -> None:
        """A restart must not die of the script's own size before it is steered."""
        bad = [one.batch_size for one in failed(self.record) if one.outcome == "out_of_memory"]
        good = [one.batch_size for one in ran(self.record)]
        native = self.record.discovery.native_batch_size if self.record.discovery else None
        if native is not None and bad and min(bad) <= native:
            self._batch_cap = min(good, default=1)

    def _end_worker(self) -> None:
        if self._worker is not None:
            self._note_worker()

    def _note_worker(self) -> None:
        """Ends the worker and keeps what it said about files."""
        assert self._worker is not None
        worker, self._worker = self._worker, None
        if self._watch is not None:
            self._watch.follow(None)
        worker.end()
        files = dict.fromkeys([*self.record.files, *worker.files])
        self._change(files=tuple(files), versions=self.record.versions or worker.versions)

    def _on_progress(self, progress: Progress) -> None:
        if self._watch is not None:
            self._watch.phase(progress.phase)
        if progress.phase == "discovering":
            self._display.discovering(progress.num_steps)
        else:
            self._display.update(
                progress.phase, progress.batch_size, progress.num_steps, progress.step_s
            )

    # the record ------------------------------------------------------------------------------

    def _first_record(self, resumed: RunRecord | None) -> RunRecord:
        options = self._options
        if resumed is not None:
            # A trial that was cut short is run again; the rest stands.
            kept = tuple(one for one in resumed.trials if one.outcome != "interrupted")
            return msgspec.structs.replace(
                resumed, state="running", goal=options.goal, trials=kept, stop_reason=""
            )
        return RunRecord(
            state="running",
            started_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            command=options.command,
            script=ScriptInfo(path=options.script, arguments=options.arguments),
            goal=options.goal,
        )

    def _folder(self, resumed: RunRecord | None) -> Path:
        options = self._options
        if resumed is not None:
            assert options.resume is not None
            if Path(resumed.script.path).resolve() != Path(options.script).resolve():
                msg = f"{options.resume} is a run of {resumed.script.path}."
                raise UsageError(msg, "Resume it with that script.")
            return options.resume if options.resume.is_dir() else options.resume.parent
        if options.output is not None:
            if (options.output / "record.json").exists():
                msg = f"{options.output} holds a run already."
                raise UsageError(msg, "Choose another folder, or go on with --resume.")
            return options.output
        return run_folder(options.script, time.strftime("%Y%m%d-%H%M%S"))

    def _add(self, trial: Trial) -> None:
        self._change(trials=(*self.record.trials, trial))
        self._display.trial_done(trial)

    def _fault(self, gone: WorkerGone, worker: Worker) -> None:
        fault = Fault(
            outcome=gone.outcome,
            detail=gone.detail,
            worker=worker.order.worker,
            log=worker.log.name,
        )
        self._change(faults=(*self.record.faults, fault))

    def _change(self, **changes: Any) -> None:
        now = time.monotonic()
        search_s = 0.0 if self._search_started_s is None else now - self._search_started_s
        self.record = msgspec.structs.replace(
            self.record,
            elapsed_s=self._elapsed_before_s + now - self._started_s,
            search_s=self._search_before_s + search_s,
            **changes,
        )
        self._save()

    def _save(self) -> None:
        if self._keep:
            self._store.save(self.record)

    def _precision(self) -> float:
        device = self.record.device
        return CPU_PRECISION if device is None or device.kind == "cpu" else GPU_PRECISION

    def _expected(self) -> str:
        left_s = self.record.goal.budget_s - self.record.search_s
        return f"{max(0.0, left_s):.0f} s of the budget left"


def _plan(record: RunRecord) -> str:
    """What the search will cost, said before it starts."""
    num_sizes, num_steps = expected_steps(record)
    primary = record.discovery.primary if record.discovery is not None else None
    where = f"steering the loader at {primary.place}; " if primary is not None else ""
    return (
        f"{where}about {num_sizes} sizes and {num_steps} optimizer steps, "
        f"at most {format_seconds(record.goal.budget_s)}"
    )


def _failed_trial(request: TrialRequest, ordinal: int, worker: int, gone: WorkerGone) -> Trial:
    tail = None
    if request.purpose == "tail":
        tail = TailCheck(num_samples=request.batch_size, outcome=gone.outcome, detail=gone.detail)
    return Trial(
        ordinal=ordinal,
        worker=worker,
        batch_size=request.batch_size,
        kind=request.kind,
        purpose=request.purpose,
        outcome=gone.outcome,
        detail=gone.detail,
        tail=tail,
    )
