"""The template door's processes: the script is started anew for each size, as its argument."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any

import msgspec

from ...advisor.measured.following import NotFollowed, grows, share_of, shows
from ...advisor.search.requests import fit_request
from ...errors import BatchAdvisorError, RunError, UsageError
from ...probes.distributed.ranks import SELF_STARTED
from ...probes.process.duty_cycle import DutyCycle
from ...probes.process.endings import WorkerGone
from ...probes.process.worker_like import WorkerLike
from ...probes.process.worker_listener import TimeOver
from ...probes.source.named_size import NoPlace, SizePlace, find_size, place_of
from ...probes.source.placeholder import filled, proposal, source_of, without_placeholder
from ...records import Discovery, RunRecord, Trial, TrialRequest
from ..setup.options import RunOptions
from .arrival import vain_error
from .failures import failed_trial
from .in_turn import WorkersInTurn
from .size_in_script import SizeInScriptError
from .worker_pool import WorkerPool, safe_cap

FIRST_SIZE = 8
"""Where neither the options nor the script's text say one."""
SHRINK = 4
"""The first size is divided by this while it does not fit."""
LOOK_S = 20.0
"""A process that is only looked at may take so long, or LOOK_SHARE times as long as the first."""
LOOK_SHARE = 3.0
OTHER_SIZE_FACTOR = 4
"""Another size is so many times the first, to see whether it arrives."""
REFUSED = 2
"""Sizes after which no further one is tried: the first may have met another limit."""
WITHOUT = "without that argument the script does not come to its training loop"
NOT_TOLD = "what a step trains on does not tell it"


def written_size(options: RunOptions) -> int | None:
    """The script's own size, as far as its text says one."""
    if options.place is not None:
        return options.place.number
    own, _ = source_of(options.script, options.arguments, module=options.module)
    return own


def first_size(options: RunOptions) -> int:
    """The size of the first process: as asked for, as the script has it, else FIRST_SIZE."""
    goal = options.goal
    asked = goal.start or min(goal.sizes, default=None)
    if asked is None:
        asked = written_size(options) or -(-FIRST_SIZE // goal.multiple_of) * goal.multiple_of
    return min(asked, goal.max_batch) if goal.max_batch is not None else asked


class TemplateWorkers(WorkerPool):
    """Starts one process for each size."""

    may_stand_by = False
    _size: int | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._aside: dict[int, tuple[WorkerLike, DutyCycle | None]] = {}

    def start(self) -> WorkerLike:
        """The first process, at a smaller size where memory is refused.

        Raises:
            BatchAdvisorError: the loop was not found.
        """
        size = first_size(self._options)
        size = min(size, safe_cap(self._writer.record) or size)
        refused: list[Trial] = []
        while True:
            started_s = time.monotonic()
            try:
                worker = self._start_at(size)
                break
            except WorkerGone as gone:
                if gone.outcome != "out_of_memory" or size == 1:
                    self._raise(gone, size)
                refused.append(self._refused(size, gone, started_s))
                smaller = max(1, size // SHRINK)
                self._display.note(f"batch {size} ran out of memory; trying {smaller}")
                size = smaller
        self._settle_sizes(size)
        for trial in refused:
            ordinal = len(self._writer.record.trials)
            self._writer.add_trial(msgspec.structs.replace(trial, ordinal=ordinal))
        return worker

    def ready_for(self, request: TrialRequest) -> WorkerLike | WorkersInTurn:
        """A process of the script at the size of the request, or one of each that takes turns.

        Raises:
            WorkerGone: it ended before its training loop was found.
        """
        turns = request.turns
        self._keep_only((request.batch_size, *request.beside) if turns is None else turns.sizes)
        if turns is None:
            return self._at(request.batch_size, fresh=request.fresh_process)
        for size in turns.sizes:
            self._at(size, fresh=False)
        self._set_aside()
        return WorkersInTurn({size: worker for size, (worker, _) in self._aside.items()})

    def may_restart(self, gone: WorkerGone) -> bool:
        """Only a process that ended during a trial is worth another; not one before its loop."""
        return self.current is not None and super().may_restart(gone)

    def was_stopped(self) -> bool:
        """Whether somebody else stopped one of the processes since this was last asked."""
        aside = [duty is None and each.was_stopped() for each, duty in self._aside.values()]
        return super().was_stopped() or any(aside)

    def end(self) -> None:
        """Ends the current worker, and those that wait for their turn."""
        super().end()
        self._keep_only(())

    # inside ----------------------------------------------------------------------------------

    def _keep_only(self, sizes: Collection[int]) -> None:
        """Ends the processes of other sizes; those of these wait for their next order."""
        self._set_aside()
        for size in self._aside.keys() - set(sizes):
            self.current, self._duty = self._aside.pop(size)
            super().end()

    def _set_aside(self) -> None:
        """The current process waits for its next order; another becomes the current one."""
        if self.current is not None and self._size is not None:
            self._aside[self._size] = self.current, self._duty
            self.current, self._duty = None, None

    def _at(self, size: int, *, fresh: bool) -> WorkerLike:
        """The process of a size, which is the current one then."""
        self._set_aside()
        if size in self._aside:
            self.current, self._duty = self._aside.pop(size)
            self._size = size
            if not fresh:
                return self.current
            super().end()
        return self._start_at(size)

    def _refused(self, size: int, gone: WorkerGone, started_s: float) -> Trial:
        """What a process showed of its size that had no memory for its first steps."""
        return failed_trial(
            fit_request(size, "the first process"),
            gone,
            ordinal=0,
            worker=self._writer.record.num_workers_started - 1,
            elapsed_s=time.monotonic() - started_s,
        )

    def _start_at(self, size: int) -> WorkerLike:
        super().end()
        self._size = size
        worker = self.spawn()
        try:
            loop = self._loop_of(worker)
        except (WorkerGone, TimeOver):
            self.end()
            raise
        if self._settle(worker):
            return self._start_at(size)
        self._found(worker, *loop)
        return worker

    def _settle_sizes(self, size: int) -> None:
        """The size that the script has as it is written, and whether another one arrives.

        Each of the two is looked at in a process of its own, and only where the text and the
        tensors of the first do not tell.

        Raises:
            RunError: the size does not arrive.
        """
        options, found = self._options, self._writer.record.discovery
        if found is None or found.entered is None:
            self._name_own(None, "nothing shows how many samples a step trains on")
            return
        if written_size(options) is None:
            written = self._look_at(None, found.setup_s)
            own = None
            if written is not None and written.entered is not None:
                own = share_of(written.entered, found.entered, size)
            self._name_own(own, WITHOUT if written is None else NOT_TOLD)
        if not shows(found.entered, size):
            most = options.goal.max_batch
            larger = most is None or OTHER_SIZE_FACTOR * size <= most
            other = OTHER_SIZE_FACTOR * size if larger else max(1, size // OTHER_SIZE_FACTOR)
            seen = self._look_at(other, found.setup_s) if other != size else None
            if seen is None or seen.entered is None:
                return
            low, high = (found, seen) if larger else (seen, found)
            assert low.entered is not None
            assert high.entered is not None
            if not grows(low.entered, high.entered, max(size, other) / min(size, other)):
                sizes = min(size, other), max(size, other)
                vain = NotFollowed(*sizes, low.entered, high.entered)
                raise vain_error(self._writer.record, vain, options)

    def _name_own(self, own: int | None, why: str) -> None:
        """The size that the script has as it is written, else why nobody knows it."""
        discovery = self._writer.record.discovery
        if discovery is None or written_size(self._options) is not None:
            return
        loaders = tuple(
            msgspec.structs.replace(loader, batch_size=own) for loader in discovery.loaders
        )
        if own is not None:
            changed = msgspec.structs.replace(discovery, native_batch_size=own, loaders=loaders)
        else:
            reasons = {**discovery.unavailable, "own_size": why}
            changed = msgspec.structs.replace(discovery, unavailable=reasons, loaders=loaders)
        self._writer.change(discovery=changed)

    def _look_at(self, size: int | None, setup_s: float) -> Discovery | None:
        """The loop of a process that makes no trial; `None` where it was not found in time.

        Args:
            size: `None` starts the script as it is written.
        """
        self._size = None
        try:
            limit_s = max(LOOK_S, LOOK_SHARE * setup_s)
            if self.until_s is not None:
                limit_s = min(limit_s, max(0.0, self.until_s - time.monotonic()))
            return self.look(limit_s, **self._changes_for(size))
        except (WorkerGone, TimeOver):
            return None

    def _order_changes(self) -> dict[str, Any]:
        return self._changes_for(self._size)

    def _changes_for(self, size: int | None) -> dict[str, Any]:
        """Fields of the order of a process that has this size, or none."""
        options = self._options
        replacement = None if options.place is None else options.place.replacement
        written = without_placeholder(options.arguments)
        return {
            "arguments": written if size is None else filled(options.arguments, size),
            "template": options.arguments,
            "batch_size": size or 1,
            "forced": options.forced,
            "place": options.place,
            "replacements": ()
            if replacement is None or size is None
            else (replacement.with_number(size),),
        }

    def _raise(self, gone: WorkerGone, size: int) -> None:
        number = self._writer.record.num_workers_started - 1
        self._fail(gone, number, batch_cap=size)


def runs_only_as_written(record: RunRecord, options: RunOptions) -> BatchAdvisorError | None:
    """The error for a script that could be steered and makes steps at its own size alone."""
    refused = _refused(record)
    if not refused:
        return None
    remedy = proposal(options.known_script, forced=True)
    test = record.discovery.leaves_out if record.discovery is not None else ""
    left_out = test and all(trial.outcome == "no_step" for trial in refused)
    why = f". Its loop leaves other batches out: {test}" if left_out else ""
    if record.distribution is not None and record.distribution.launcher == SELF_STARTED:
        # Ranks of a script that is started once for each size are not steered.
        remedy = "Take the size from the batch (inputs.shape[0]) where the code has that number."
    said = f"batch {refused[0].batch_size}: {refused[0].detail}{why}"
    return RunError(f"{_only_its_own(record, options)}; {said}.", remedy)


def only_as_written(
    record: RunRecord, options: RunOptions, *, is_last: bool
) -> SizeInScriptError | None:
    """Says where such a run goes on: the place of its size is known, and enough was tried.

    Args:
        is_last: no further size will be tried.
    """
    error, discovery = runs_only_as_written(record, options), record.discovery
    if options.loader is not None or options.traits.process_per_size or error is None:
        return None
    own = discovery.native_batch_size if discovery is not None else None
    refused = _refused(record)
    # A size that has to be a multiple of something refuses some, but no multiple of one that ran.
    enough = len(refused) >= REFUSED and any(own and t.batch_size % own == 0 for t in refused)
    if discovery is None or not (enough or is_last):
        return None
    place: SizePlace | NoPlace | None = find_size(options.known_script)
    if not isinstance(place, SizePlace) or place.number != own:  # another loader's, perhaps
        place = place_of(discovery.primary.source, own, options.arguments)
    if place is None:
        return None
    why = f"{_only_its_own(record, options)}, whatever its loader is asked for"
    return SizeInScriptError(error.what, error.remedy, place, why)


def place_before(record: RunRecord, options: RunOptions) -> SizePlace | None:
    """The place through which sizes went in an earlier part of a run.

    Raises:
        UsageError: it is not what it was.
    """
    discovery = record.discovery
    if discovery is None or not discovery.traits.process_per_size:
        return None
    if options.traits.process_per_size:
        return None
    known, place = discovery.primary.source, find_size(options.known_script)
    if isinstance(place, SizePlace) and place.source == known:
        return place
    found = place_of(known, discovery.native_batch_size, options.arguments)
    if found is None:
        before = "what sets the size" if known is None else known.before
        msg = f"{options.resume} went through {before}, which is not found any more."
        raise UsageError(msg, "Start a new run without --resume.")
    return found


def _only_its_own(record: RunRecord, options: RunOptions) -> str:
    own = record.discovery.native_batch_size if record.discovery is not None else None
    return f"{options.script} trains only at its own batch size {own}"


def _refused(record: RunRecord) -> list[Trial]:
    """The trials of other sizes, where the own one ran and none of these made a step.

    The script's code uses its size elsewhere (shapes, a guard), so that a batch of another size
    does not go through; started with another size it would. Where the own one was not asked for,
    the loop was found by steps with it; an exception in later ones may have another cause.
    """
    discovery = record.discovery
    if discovery is None or not discovery.traits.steers_loader:
        return []
    trials = [trial for trial in record.trials if trial.purpose == "search"]
    own = discovery.native_batch_size
    ran = {trial.batch_size for trial in trials if trial.ran}
    others = [trial for trial in trials if trial.batch_size != own]
    only_found = not ran and len(others) == len(trials)
    outcomes = ("no_step",) if only_found else ("exception", "no_step")
    refused = [other for other in others if other.outcome in outcomes]
    stands = only_found or ran == {own}
    return refused if stands and len(refused) == len(others) else []
