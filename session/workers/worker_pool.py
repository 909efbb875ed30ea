"""The worker processes of one run: at most one lives, and all of them are ended."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from ...advisor.measured.measurements import Measurements
from ...probes.devices import host
from ...probes.distributed.group_worker import GroupWorker
from ...probes.distributed.rank_group import RankGroup
from ...probes.distributed.self_started import SelfStarted
from ...probes.process.duty_cycle import DutyCycle
from ...probes.process.endings import NoRanks, RanksStarting, WorkerGone
from ...probes.process.folder_snapshot import FolderSnapshot
from ...probes.process.interrupts import held_back
from ...probes.process.messages import Progress
from ...probes.process.orders import WorkOrder
from ...probes.process.supervisor import Worker
from ...probes.process.worker_environment import Scratch, worker_environment
from ...probes.process.worker_like import WorkerLike
from ...records import DeviceInfo, Discovery, Fault, FileTouched, RunRecord, TrialRequest
from ...units import format_bytes, format_seconds, format_variables
from ..display import Display
from ..recording.record_writer import RecordWriter
from ..setup.gpu_choice import settled
from ..setup.options import RunOptions
from ..setup.target import Target
from ..setup.waiting_threads import variables_beside_others
from .failures import error_of, fed_by_no_loader, refusal_before_the_loop
from .gpu_watch import GpuWatch
from .in_turn import WorkersInTurn
from .restarts import Restarts
from .size_in_script import SizeInScriptError, of_ranks
from .standby import Reserve

MOVED = 0.01
"""Share by which the memory of a GPU must have changed to be written down anew."""

BATCH_CAPS = (8, 2, 1)
"""Sizes with which discovery is tried again when the script's own does not fit."""

BEFORE_THE_LOOP = (
    "memory was refused before the training loop was found, and batches of all loaders were cut to "
    "{} until then: where an evaluation needed it, its batches have to become smaller as well"
)
SLOW_START_S = 30.0
"""A first start that takes longer says so: by then people ask whether anything goes on."""
DISCOVERY_SILENCE = 10.0
"""Before the loop is found a script may be silent this many times longer: data, downloads."""


class WorkerPool:
    """Starts and ends workers.

    Attributes:
        current: the one that lives, in its training loop.
        watch: NVML beside it, on NVIDIA devices.
        num_measured: trials that `current` completed.
        restarts: of the script, and what trials do otherwise after one.
        until_s: a process that is started takes no longer than up to this moment, by
            `time.monotonic`, to come to its training loop; `None` for the first.
        reserve: the process that stands by for the next fresh one, where there is one.
    """

    may_stand_by = True
    """Whether the next process can begin before it is known what it will be asked."""

    def __init__(
        self,
        options: RunOptions,
        target: Target,
        writer: RecordWriter,
        display: Display,
        *,
        group: RankGroup | None = None,
    ) -> None:
        self._group = group
        self._options = options
        self._target = target
        self._writer = writer
        self._display = display
        self._scratch = Scratch()
        self._batch_cap: int | None = None
        self._refused_early: Fault | None = None
        self._large_fake = self._only_fakes = False
        self.restarts = Restarts()
        self.current: WorkerLike | None = None
        self.watch: GpuWatch | None = None
        self.num_measured = 0
        self.until_s: float | None = None
        self.reserve = Reserve(
            allowed=self.may_stand_by
            and writer.keep
            and group is None
            and not target.cores
            and options.memory_limit_bytes is None
        )
        self._duty: DutyCycle | None = None
        self._by_ranks = False
        self._tree = FolderSnapshot(Path.cwd(), (writer.store.folder,))

    def cut_batches(self, size: int | None) -> None:
        """The script's own batches are cut to this size until its loop is found."""
        self._batch_cap = size

    def fake_large_models(self, *, wanted: bool) -> None:
        """Whether the parameters of a large model have no contents."""
        self._large_fake = wanted

    def make_only_fakes(self) -> None:
        """No real step is asked for once the loop is found."""
        self._only_fakes = True

    def start(self) -> WorkerLike:
        """A fresh process of the script, brought to its training loop.

        Raises:
            BatchAdvisorError: the loop was not found.
        """
        self.end()
        self._batch_cap = safe_cap(self._writer.record) or self._batch_cap
        while True:
            worker = self.spawn()
            self._stand_by(worker.order)
            try:
                worker, discovery, device = self._discover(worker)
            except WorkerGone as gone:
                self._smaller_or_raise(worker, gone)
                continue
            if self._settle(worker):
                self._display.note("the script names its GPUs by number; starting it again")
                self.end()
                continue
            self._found(worker, discovery, device)
            self.reserve.settle()
            return worker

    def ready_for(self, request: TrialRequest) -> WorkerLike | WorkersInTurn:
        """The process that runs a request: the one that lives, or a fresh one.

        Raises:
            BatchAdvisorError: the loop was not found.
        """
        self.reserve.make_room()
        if self.current is None or request.fresh_process:
            return self.start()
        return self.current

    def was_stopped(self) -> bool:
        """Whether somebody else stopped the current process since this was last asked."""
        worker = self.current
        return self._duty is None and worker is not None and worker.was_stopped()

    def end(self) -> None:
        """Ends the current worker and keeps what it said about files.

        It stays the current one until all is done: where Ctrl-C cuts this short, another call does
        the rest.
        """
        if self.current is None:
            return
        if self._duty is not None:
            self._duty.close()
            self._duty = None
        self.current.end()
        if self.watch is not None:
            self.watch.follow(None)
        self._writer.add_files(self._touched(self.current.files))
        self.current = None

    def _touched(self, told: list[FileTouched]) -> list[FileTouched]:
        """Files that the script's process told, and others that changed in the working folder."""
        self._tree.ignore(self._scratch.path)
        known = {file.path for file in (*told, *self._writer.record.files)}
        return [*told, *(change for change in self._tree.changes() if change.path not in known)]

    def close(self) -> None:
        """Ends everything and removes temporary files, also where the record cannot be written."""
        with contextlib.ExitStack() as last:
            last.callback(self._scratch.remove)
            if self.watch is not None:
                last.callback(self.watch.close)
            last.callback(self.reserve.end)
            self.end()

    def may_restart(self, gone: WorkerGone) -> bool:
        """Whether the script is started again; see restarts.py."""
        why = self.restarts.why_again(gone, self.num_measured)
        if not why:
            return False
        log = ""
        if gone.is_own_fault:
            self._add_fault(gone, self._writer.record.num_workers_started - 1)
            log = f" (see {self._writer.store.log_path.name})"
        self._display.note(f"{gone.detail}; {why}{log}")
        self.end()
        return True

    def spawn(self, **changes: Any) -> WorkerLike:
        """A fresh process, with these changes to what it is ordered."""
        options = self._options
        number = self._writer.record.num_workers_started
        self._writer.change(num_workers_started=number + 1)
        order = self._order(number, **changes)
        environment = self._environment()
        self.reserve.settle()
        with held_back():
            start = (
                functools.partial(Worker, launched=self.reserve.take(order, environment))
                if self._group is None
                else functools.partial(GroupWorker, self._group)
            )
            self.current = start(
                order,
                log=self._writer.store.log_path,
                environment=environment,
                silence_s=options.silence_s,
                setup_s=options.silence_s * DISCOVERY_SILENCE,
                on_progress=self._on_progress,
            )
        return self.current

    def look(self, limit_s: float, **changes: Any) -> Discovery:
        """The training loop that a process comes to which makes no trial; then it is ended.

        Args:
            changes: of the order.

        Raises:
            WorkerGone, TimeOver, RanksStarting: it was not found.
        """
        self.end()
        try:
            return self.spawn(**changes).discover(time.monotonic() + limit_s)[0]
        finally:
            self.end()

    def note_early_refusal(self) -> None:
        """Memory refused before the loop is a fault unless the script's own size did not fit."""
        if self._refused_early is not None and safe_cap(self._writer.record) is None:
            self._writer.add_fault(self._refused_early)

    # inside ----------------------------------------------------------------------------------

    def _stand_by(self, first: WorkOrder) -> None:
        """While the first process measures nothing, the next one is started as well."""
        if first.worker:
            return
        order = msgspec.structs.replace(first, ahead=True)
        self.reserve.start(order, self._writer.store.log_path, self._environment())

    def _environment(self) -> dict[str, str]:
        """The variables of the next process."""
        target = self._target
        variables = target.gpus.variables | self._how_threads_wait()
        return worker_environment(target.device, self._scratch.path, variables)

    def _how_threads_wait(self) -> dict[str, str]:
        """Decided once for a whole run, so that all of its processes compare."""
        record = self._writer.record
        if record.variables is None:
            times = self._writer.keep and not self._only_fakes
            begins = times and not record.trials and self._group is None
            variables = variables_beside_others(self._target) if begins else {}
            self._writer.change(variables=variables)
            if variables:
                self._display.note(
                    "other programs use the cores: the script's threads give theirs away while "
                    f"they wait ({format_variables(variables)})"
                )
            return variables
        return record.variables

    def _settle(self, worker: WorkerLike) -> bool:
        """Settles the GPUs of later processes; whether this one saw them in a wrong order."""
        gpus, again = settled(self._target.gpus, [gpu.index for gpu in worker.in_use])
        self._target = msgspec.structs.replace(self._target, gpus=gpus)
        return again

    def _discover(self, worker: WorkerLike) -> tuple[WorkerLike, Discovery, DeviceInfo]:
        """The training loop, of the script itself or of the ranks that it starts.

        Raises:
            TimeOver: it was not found within the time that there is.
        """
        while True:
            try:
                return worker, *self._loop_of(worker)
            except RanksStarting as starting:
                self.reserve.end()
                ranks = self._self_started(worker, starting)
            try:
                return ranks, *ranks.discover()
            except NoRanks:  # they prepared something; the training is still to come
                self.current, self._by_ranks = worker, False

    def _loop_of(self, worker: WorkerLike) -> tuple[Discovery, DeviceInfo]:
        """The training loop of a process; a script that takes long to come to it is named."""
        if self._writer.record.discovery is not None:
            return worker.discover(self.until_s)
        slow = threading.Timer(SLOW_START_S, self._note_slow_start, (worker,))
        slow.daemon = True
        slow.start()
        try:
            return worker.discover(self.until_s)
        finally:
            slow.cancel()

    def _note_slow_start(self, worker: WorkerLike) -> None:
        silence = format_seconds(self._options.silence_s * DISCOVERY_SILENCE)
        does = "reads data, compiles or evaluates"
        if host.descendants(worker.pid):
            does += (
                ", or waits for processes that it has started (they are followed as ranks only "
                "where torch.multiprocessing.spawn or a launcher starts them)"
            )
        self._display.note(
            f"{self._options.script} has run for {SLOW_START_S:g} s and not come to its training "
            f"loop: it {does}. At most a third of the budget is counted for that; after {silence} "
            "without a step the run ends"
        )

    def _self_started(self, worker: WorkerLike, starting: RanksStarting) -> WorkerLike:
        """The script starts ranks itself: from here on they are what is steered."""
        assert isinstance(worker, Worker)  # no other kind runs a script that could
        silence_s = self._options.silence_s
        self._by_ranks = True
        self.current = SelfStarted(
            worker,
            starting.world_size,
            own_rank=starting.own_rank,
            silence_s=silence_s,
            setup_s=silence_s * DISCOVERY_SILENCE,
            on_progress=self._on_progress,
        )
        return self.current

    def _order(self, number: int, **changes: Any) -> WorkOrder:
        order = work_order(
            self._options,
            self._target,
            number,
            run_folder=self._writer.store.folder.resolve(),
            scratch_folder=self._scratch.path,
            batch_cap=self._batch_cap,
        )
        told = {
            "large_fake": self._large_fake,
            "only_fakes": self._only_fakes,
            "ends_epochs": self.restarts.ends_epochs,
            "made": tuple(
                file.path
                for file in self._writer.record.files
                if file.action == "mkdir" and not file.listed
            ),
        }
        return msgspec.structs.replace(order, **{**told, **self._order_changes(), **changes})

    def _order_changes(self) -> dict[str, Any]:
        """Fields of the order that another door sets otherwise."""
        return {}

    def _found(self, worker: WorkerLike, discovery: Discovery, device: DeviceInfo) -> None:
        self.num_measured = 0
        if self._writer.record.distribution is None:
            self._writer.change(distribution=worker.distribution)
        if self._writer.record.discovery is None:
            self._writer.change(discovery=discovery, device=device, versions=worker.versions)
        else:
            self._capacity_now(device)
        if self.watch is None:
            self.watch = GpuWatch.for_device(device, worker.in_use)
        if self.watch is not None:
            self.watch.follow(worker.pid)
        if self._target.share < 1:  # from here on it is measured; nobody waits for a slow start
            self._duty = DutyCycle(worker.pid, self._target.share)

    def _capacity_now(self, device: DeviceInfo) -> None:
        """Notes that a GPU's memory for the script has changed with its other processes."""
        before = self._writer.record.device
        if before is None or not capacity_moved(before, device):
            return
        was, now = format_bytes(before.capacity_bytes), format_bytes(device.capacity_bytes)
        self._display.note(f"the GPU had {was} for the script, it has {now} now")
        self._writer.change(device=with_capacity_of(before, device))

    def _smaller_or_raise(self, worker: WorkerLike, gone: WorkerGone) -> None:
        """After memory was refused the batches are cut smaller; anything else ends the run."""
        self.end()
        smaller = next_cap(self._batch_cap)
        helps = refusal_before_the_loop(gone, self._batch_cap) is None
        helps = helps and not fed_by_no_loader(gone, self._options)
        if gone.outcome == "out_of_memory" and smaller is not None and helps:
            self._batch_cap = smaller
            self._display.note(f"out of memory; trying again with batches of {smaller}")
            cut = BEFORE_THE_LOOP.format(smaller)
            self._refused_early = self._fault(gone, worker.order.worker, cut)
            return
        self._fail(gone, worker.order.worker, self._batch_cap)

    def _fail(self, gone: WorkerGone, number: int, batch_cap: int | None) -> NoReturn:
        """Ends the run with the fault in the record.

        Raises:
            BatchAdvisorError: always.
        """
        log = self._writer.store.log_path
        found = self._writer.record.discovery
        again = found is not None and found.traits.steers_loader
        error = error_of(gone, self._options, log, batch_cap, again=again)
        if isinstance(error, SizeInScriptError):
            if not self._by_ranks:
                raise error  # the run goes on through it
            # Nobody would steer ranks that the script starts: they would train in earnest.
            error = of_ranks(error, self._options)
        self._add_fault(gone, number)
        raise error from gone

    def _add_fault(self, gone: WorkerGone, number: int) -> None:
        self._writer.add_fault(self._fault(gone, number, gone.detail))

    def _fault(self, gone: WorkerGone, number: int, detail: str) -> Fault:
        log = self._writer.store.log_path.name
        return Fault(outcome=gone.outcome, detail=detail, worker=number, log=log)

    def _on_progress(self, progress: Progress) -> None:
        if self.watch is not None:
            self.watch.phase(progress.phase, progress.timed_until_s)
        if progress.timed_until_s is not None:
            return
        if progress.phase == "discovering":
            self._display.discovering(progress.num_steps)
        else:
            self._display.update(
                progress.phase, progress.batch_size, progress.num_steps, progress.step_s
            )


def safe_cap(record: RunRecord) -> int | None:
    """A size for the batches before steering, where the script's own is known not to fit."""
    measurements = Measurements.of(record)
    failed, own = measurements.failed, measurements.own_size
    refused = [trial.batch_size for trial in failed if trial.outcome == "out_of_memory"]
    if own is None or not refused or min(refused) > own:
        return None
    return min(measurements.sizes_that_ran, default=next_cap(min(refused)))


def next_cap(cap: int | None) -> int | None:
    """The next smaller size after memory was refused at `cap`; `None` where there is none."""
    return next((size for size in BATCH_CAPS if cap is None or size < cap), None)


def capacity_moved(before: DeviceInfo, now: DeviceInfo) -> bool:
    """Whether the same GPU has noticeably more or less memory for the script than before."""
    if now.kind != "cuda" or before.uuid != now.uuid:
        return False
    return abs(now.capacity_bytes - before.capacity_bytes) >= MOVED * before.capacity_bytes


def with_capacity_of(before: DeviceInfo, now: DeviceInfo) -> DeviceInfo:
    """The device as it was, with the memory that it has now."""
    return msgspec.structs.replace(
        before, capacity_bytes=now.capacity_bytes, capacity_source=now.capacity_source
    )


def work_order(
    options: RunOptions,
    target: Target,
    number: int,
    *,
    run_folder: Path,
    scratch_folder: Path,
    batch_cap: int | None,
) -> WorkOrder:
    """The order of one worker.

    Args:
        number: of the worker in its run, from 0.
        batch_cap: batches before discovery are cut to this size.
    """
    return WorkOrder(
        script=options.script,
        arguments=options.arguments,
        module=options.module,
        worker=number,
        device=target.device,
        memory_limit_bytes=options.memory_limit_bytes,
        data_limit_bytes=target.data_limit_bytes,
        run_folder=str(run_folder),
        scratch_folder=str(scratch_folder),
        loader=options.loader,
        batch_cap=batch_cap,
        profile_schedule=options.profile_schedule,
        with_stack=options.with_stack,
        door=options.door,
        worst_case=options.goal.worst_case,
        cores=target.cores,
        paced=target.share < 1,
        silence_s=options.silence_s,
    )
