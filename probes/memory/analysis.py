"""One snapshot, counted: each device's state, and what its history tells."""

from __future__ import annotations

import msgspec

from ...records import SnapshotDevice
from .replay import History
from .snapshot import Event, Segment, Snapshot
from .state import state_of
from .steps import MIN_STEP_ENDS, growth_of, steps_of

RECORD_HISTORY = "torch.cuda.memory._record_memory_history(max_entries=100_000)"
TOLERATED_MISMATCHES = 0.01
"""Share of the events that the blocks may contradict before the history is not believed."""
RECORD_STACKS = f'{RECORD_HISTORY[:-1]}, stacks="python")'


def devices_of(snapshot: Snapshot) -> tuple[SnapshotDevice, ...]:
    """Every device that the snapshot knows anything of, by its number."""
    segments: dict[int, list[Segment]] = {}
    for segment in snapshot.segments:
        segments.setdefault(segment.device, []).append(segment)
    busy = {number for number, trace in enumerate(snapshot.traces) if trace}
    return tuple(
        _device(snapshot, number, segments.get(number, []))
        for number in sorted(busy | segments.keys())
    )


def notes_of(snapshot: Snapshot) -> tuple[str, ...]:
    """Notes to read before the numbers are believed."""
    notes = []
    if not snapshot.segments and not any(snapshot.traces):
        notes.append("the snapshot is empty: torch had no memory on any GPU")
    elif not snapshot.has_stacks:
        notes.append(
            "the snapshot has no stacks, so that no line of code can be named; before the "
            f"training, call {RECORD_STACKS}"
        )
    notes.append(
        "only memory of torch's allocator is in a snapshot: not the CUDA context, NCCL's buffers "
        "or other programs"
    )
    return tuple(notes)


def _device(snapshot: Snapshot, number: int, segments: list[Segment]) -> SnapshotDevice:
    state = state_of(number, segments)
    events: tuple[Event, ...] = ()
    if number < len(snapshot.traces):
        events = snapshot.traces[number]
    if not any(event.action == "alloc" for event in events):
        why = (
            "the snapshot has no history of allocations; before the training, call "
            f"{RECORD_HISTORY}"
        )
        reasons = dict.fromkeys(("peak", "growth", "timeline"), why)
        failed = History(events, segments).out_of_memory() if events else None
        return msgspec.structs.replace(
            state,
            num_events=len(events),
            out_of_memory=failed,
            num_out_of_memory=sum(event.action == "oom" for event in events),
            unavailable=reasons,
        )
    history = History(events, segments)
    own = [note for note in snapshot.annotations if note.device == number]
    steps, source = steps_of(events, own or snapshot.annotations, history.active)
    reasons = {}
    told = history.mismatches <= TOLERATED_MISMATCHES * len(events)
    if not told:
        reasons = dict.fromkeys(("peak", "growth", "timeline"), history.doubt)
    elif history.mismatches:
        reasons["history"] = history.doubt
    if told and not steps:
        reasons["growth"] = (
            f"fewer than {MIN_STEP_ENDS} steps can be told apart in the history: "
            "growth cannot be told"
        )
    return msgspec.structs.replace(
        state,
        num_events=len(events),
        peak=history.peak() if told else None,
        out_of_memory=history.out_of_memory(),
        num_out_of_memory=sum(event.action == "oom" for event in events),
        growth=growth_of(history, steps) if told else (),
        num_steps=len(steps),
        step_source=source,
        timeline=history.timeline(steps) if told else None,
        failure=history.around_failure() if told else None,
        unavailable=reasons,
    )
