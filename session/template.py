"""The template door's processes: the script is started anew for each size, as its argument."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from ..errors import BatchAdvisorError, RunError, UsageError
from ..probes.hearing import TimeOver
from ..probes.placeholder import PLACEHOLDER, filled, has_placeholder, proposal, source_of
from ..probes.supervisor import WorkerGone
from ..records import RunRecord, TrialRequest
from .options import RunOptions
from .workers import AnyWorker, Workers

FIRST_SIZE = 8
"""Where neither the options nor the script's text say one."""
SHRINK = 4
"""The first size is divided by this while it does not fit."""
_NEARLY = re.compile(r"\{\s*(batch|bs|bsz|b|size|batch[-_ ]?sizes?)\s*\}", re.IGNORECASE)


def with_door(options: RunOptions, *, forced: bool) -> RunOptions:
    """The options with their door: a placeholder in the script's arguments chooses the template.

    Args:
        forced: `--template` was given.

    Raises:
        UsageError: the placeholder is missing, or misspelt, or the options contradict it.
    """
    arguments = options.arguments
    if not has_placeholder(arguments):
        near = next((found for one in arguments if (found := _NEARLY.search(one))), None)
        if near is not None:
            msg = f"{near.group()} is not the placeholder for the batch size."
            raise UsageError(msg, f"Write {PLACEHOLDER}.")
        if forced:
            raise UsageError(
                f"--template: no argument of {options.script} holds {PLACEHOLDER}.",
                _remedy(options),
            )
        return options
    if options.door == "workload":
        msg = f"a declared workload gets its size by a function call, not by {PLACEHOLDER}."
        raise UsageError(msg, "Leave the placeholder or --workload out.")
    if options.loader is not None:
        msg = f"--loader steers a DataLoader, and {PLACEHOLDER} leaves all of them alone."
        raise UsageError(msg, "Leave one of them out.")
    return msgspec.structs.replace(options, door="template", forced=forced)


def first_size(options: RunOptions) -> int:
    """The size of the first process: as asked for, as the script has it, else FIRST_SIZE."""
    goal = options.goal
    asked = goal.start or min(goal.sizes, default=None)
    if asked is None:
        own, _ = source_of(options.script, options.arguments, module=options.module)
        asked = own or FIRST_SIZE
    return min(asked, goal.max_batch) if goal.max_batch is not None else asked


class TemplateWorkers(Workers):
    """Starts one process for each size."""

    may_stand_by = False
    _size: int | None = None

    def start(self) -> AnyWorker:
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

    def ready_for(self, request: TrialRequest) -> AnyWorker:
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

    def _start_at(self, size: int) -> AnyWorker:
        self.end()
        self._size = size
        worker = self._spawn()
        try:
            found = self._found_by(worker)
        except (WorkerGone, TimeOver):
            self.end()
            raise
        if self._settle(worker):
            return self._start_at(size)
        self._found(worker, *found)
        return worker

    def _order_changes(self) -> dict[str, Any]:
        assert self._size is not None
        options = self._options
        return {
            "arguments": filled(options.arguments, self._size),
            "template": options.arguments,
            "batch_size": self._size,
            "forced": options.forced,
        }

    def _raise(self, gone: WorkerGone, size: int) -> None:
        number = self._journal.record.num_workers_started - 1
        self._fail(gone, number, batch_cap=size)


def runs_only_as_written(record: RunRecord, options: RunOptions) -> BatchAdvisorError | None:
    """The error for a script that could be steered and makes steps at its own size alone.

    Its code uses the size elsewhere (shapes, a guard), so that a batch of another size does not
    go through; started with another size it would.
    """
    discovery = record.discovery
    if discovery is None or discovery.door != "loader":
        return None
    trials = [one for one in record.trials if one.purpose == "search"]
    own = discovery.native_batch_size
    ran = {one.batch_size for one in trials if one.ran}
    others = [one for one in trials if one.batch_size != own]
    refused = [one for one in others if one.outcome in ("exception", "no_step")]
    if ran != {own} or not refused or len(refused) != len(others):
        return None
    worst = refused[0]
    return RunError(
        f"{options.script} trains only at its own batch size {own}; batch {worst.batch_size}: "
        f"{worst.detail}.",
        proposal(options.script, options.arguments, module=options.module, forced=True),
    )


def _remedy(options: RunOptions) -> str:
    return proposal(options.script, options.arguments, module=options.module, forced=True)
