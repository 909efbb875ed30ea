"""The template door's processes: the script is started anew for each size, as its argument."""

from __future__ import annotations

from typing import Any

from ...errors import BatchAdvisorError, RunError
from ...probes.process.endings import WorkerGone
from ...probes.process.worker_like import WorkerLike
from ...probes.process.worker_listener import TimeOver
from ...probes.source.placeholder import filled, proposal, source_of
from ...records import RunRecord, TrialRequest
from ..setup.options import RunOptions
from .worker_pool import WorkerPool

FIRST_SIZE = 8
"""Where neither the options nor the script's text say one."""
SHRINK = 4
"""The first size is divided by this while it does not fit."""


def first_size(options: RunOptions) -> int:
    """The size of the first process: as asked for, as the script has it, else FIRST_SIZE."""
    goal = options.goal
    asked = goal.start or min(goal.sizes, default=None)
    if asked is None:
        if options.place is not None:
            own = options.place.number
        else:
            own, _ = source_of(options.script, options.arguments, module=options.module)
        asked = own or FIRST_SIZE
    return min(asked, goal.max_batch) if goal.max_batch is not None else asked


class TemplateWorkers(WorkerPool):
    """Starts one process for each size."""

    may_stand_by = False
    _size: int | None = None

    def start(self) -> WorkerLike:
        """The first process, at a smaller size where memory is refused.

        Raises:
            BatchAdvisorError: the loop was not found.
        """
        size = first_size(self._options)
        while True:
            try:
                return self._start_at(size)
            except WorkerGone as gone:
                if gone.outcome != "out_of_memory" or size == 1:
                    self._raise(gone, size)
                smaller = max(1, size // SHRINK)
                self._display.note(f"batch {size} ran out of memory; trying {smaller}")
                size = smaller

    def ready_for(self, request: TrialRequest) -> WorkerLike:
        """A process of the script at the size of the request.

        Raises:
            WorkerGone: it ended before its training loop was found.
        """
        same = self._size == request.batch_size and not request.fresh_process
        if self.current is not None and same:
            return self.current
        return self._start_at(request.batch_size)

    def may_restart(self, gone: WorkerGone) -> bool:
        """Only a process that ended during a trial is worth another; not one before its loop."""
        return self.current is not None and super().may_restart(gone)

    # inside ----------------------------------------------------------------------------------

    def _start_at(self, size: int) -> WorkerLike:
        self.end()
        self._size = size
        worker = self._spawn()
        try:
            loop = worker.discover(self.until_s)
        except (WorkerGone, TimeOver):
            self.end()
            raise
        if self._settle(worker):
            return self._start_at(size)
        self._found(worker, *loop)
        return worker

    def _order_changes(self) -> dict[str, Any]:
        assert self._size is not None
        options = self._options
        place = options.place
        replacement = None if place is None else place.replacement
        replaced = () if replacement is None else (replacement.with_number(self._size),)
        return {
            "arguments": filled(options.arguments, self._size),
            "template": options.arguments,
            "batch_size": self._size,
            "forced": options.forced,
            "place": place,
            "replacements": replaced,
        }

    def _raise(self, gone: WorkerGone, size: int) -> None:
        number = self._writer.record.num_workers_started - 1
        self._fail(gone, number, batch_cap=size)


def runs_only_as_written(record: RunRecord, options: RunOptions) -> BatchAdvisorError | None:
    """The error for a script that could be steered and makes steps at its own size alone.

    Its code uses the size elsewhere (shapes, a guard), so that a batch of another size does not
    go through; started with another size it would.
    """
    discovery = record.discovery
    if discovery is None or not discovery.traits.steers_loader:
        return None
    trials = [trial for trial in record.trials if trial.purpose == "search"]
    own = discovery.native_batch_size
    ran = {trial.batch_size for trial in trials if trial.ran}
    others = [trial for trial in trials if trial.batch_size != own]
    refused = [other for other in others if other.outcome in ("exception", "no_step")]
    if ran != {own} or not refused or len(refused) != len(others):
        return None
    worst = refused[0]
    return RunError(
        f"{options.script} trains only at its own batch size {own}; batch {worst.batch_size}: "
        f"{worst.detail}.",
        proposal(options.known_script, forced=True),
    )
