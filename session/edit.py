"""After the search: the script is started with the recommended change, and the size must arrive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ..advisor.advise import advise
from ..advisor.measured.script import script_of
from ..advisor.search.cost import end_s
from ..probes.distributed.ranks import SELF_STARTED
from ..probes.process.endings import RanksStarting, WorkerGone
from ..probes.process.worker_listener import TimeOver
from ..probes.source.named_size import place_of
from ..probes.source.number_place import place_of_number
from ..probes.source.placeholder import filled
from ..probes.source.replaced import replacement_at
from ..records import BatchSizeSource, EditCheck, Following, RunRecord
from .recording.record_writer import RecordWriter

if TYPE_CHECKING:
    from .setup.options import RunOptions
    from .workers.worker_pool import WorkerPool

LOOP_STEPS = 3
"""Steps until a training loop is found."""
ROOM_FACTOR = 1.5
"""A process is started where so many times what it should take is left."""
CHEAP = 0.1
"""Before the confirmation it may take this share of the budget, after it all that is left."""
NO_TIME_LEFT = "no time was left for it"
ROUGHLY = "nothing tells which number of that line it is"
SEVERAL_RANKS = "the script trains on several ranks"


def check_edit(
    workers: WorkerPool, writer: RecordWriter, options: RunOptions, *, last: bool
) -> None:
    """Tries the change that will be recommended, and writes its effect into the record.

    The source is compiled with another number, or the script gets another argument: no file is
    changed. No failure here is one of the run.

    Args:
        last: nothing else follows that needs the time.
    """
    record = writer.record
    advice, discovery = advise(record), record.discovery
    if not advice.change_check or advice.recommended is None or discovery is None:
        return
    source, size = discovery.primary.source, advice.recommended.batch_size
    own = discovery.native_batch_size
    written = own, size  # the numbers that stand there, before and after
    if discovery.shared is not None:
        source, written = discovery.shared.source, _of_all_ranks(discovery.shared, own, size)
    if source is None or (record.edit is not None and record.edit.size == size):
        return
    budget_s = record.goal.budget_s
    left_s = end_s(budget_s) - writer.search_s
    left_s = left_s if last else min(left_s, CHEAP * budget_s)
    changes = _in_force(source, *written, options.arguments)
    step_s = 0.0 if advice.recommended.step_s is None else advice.recommended.step_s.median
    setup_s = script_of(discovery, record.trials).setup_s
    needed_s = ROOM_FACTOR * (setup_s + LOOP_STEPS * discovery.micro_batches * step_s)
    reason = ""
    if changes is None:
        reason = ROUGHLY
    elif _cannot_start_all(record):
        reason = SEVERAL_RANKS
    elif needed_s > left_s:
        reason = NO_TIME_LEFT
    if reason == NO_TIME_LEFT and not last:
        return
    if reason or changes is None:
        writer.change(edit=EditCheck(size=size, reason=reason))
        return
    check = _tried(workers, writer, size, changes)
    file = options.script if source.place is None else source.place.file
    if check.arrived == own != size:
        other = place_of_number(file, (own,), after=source.place)
        second = None if other is None else replacement_at(other[1], own, size)
        enough = needed_s <= end_s(budget_s) - writer.search_s
        if other is not None and second is not None and enough:
            both = {**changes, "replacements": (*changes.get("replacements", ()), second)}
            again = _tried(workers, writer, size, both)
            if again.did:
                check = msgspec.structs.replace(again, also=other[1])
    writer.change(edit=check)


def _cannot_start_all(record: RunRecord) -> bool:
    """Whether the script trains on ranks that it starts itself: a look follows it no further."""
    distribution, discovery = record.distribution, record.discovery
    if distribution is None:
        return discovery is not None and discovery.num_ranks > 1
    return distribution.launcher == SELF_STARTED


def _of_all_ranks(shared: Following, own: int, size: int) -> tuple[int, int]:
    return shared.number, shared.number // own * size


def _tried(
    workers: WorkerPool, writer: RecordWriter, size: int, changes: dict[str, Any]
) -> EditCheck:
    """The first steps of the script with the change in force."""
    left_s = end_s(writer.record.goal.budget_s) - writer.search_s
    try:
        found = workers.look(left_s, batch_cap=None, **changes)
    except TimeOver:
        return EditCheck(size=size, reason=NO_TIME_LEFT)
    except RanksStarting:
        return EditCheck(size=size, reason=SEVERAL_RANKS)
    except WorkerGone as gone:
        return EditCheck(size=size, reason=f"started so, it did not train: {gone.detail}")
    return EditCheck(size=size, arrived=found.native_batch_size, micro_batches=found.micro_batches)


def _in_force(
    source: BatchSizeSource, own: int, size: int, arguments: Sequence[str]
) -> dict[str, Any] | None:
    """How a process is ordered to run with the change; `None` where the number is not known."""
    place = place_of(source, own, arguments)
    if place is None:
        return None
    if place.replacement is not None:
        return {"replacements": (place.replacement.with_number(size),)}
    return {"arguments": filled(place.arguments, size)}
