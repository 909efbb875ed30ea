"""Which of the loaders that train is asked for sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...records import Door as DoorName
from ..loader.loader_handle import LoaderHandle

MOST_AHEAD = 32
"""A script that takes batches more steps ahead than this is looking at its data, not training."""


@dataclass(frozen=True)
class Refusal:
    """Why no loader can be asked for sizes; the arguments of `StepListener.cannot_steer`."""

    reason: str
    remedy: str
    usage: bool = False
    door: DoorName | None = None


def primary_of(
    handles: Sequence[LoaderHandle], training: Sequence[int], wanted: int | None
) -> LoaderHandle | Refusal:
    """The loader whose size is asked for, or why there is none.

    Args:
        training: ordinals of those that yield between optimizer steps, by their first fetch.
        wanted: ordinal of the user's choice; `None` takes the first that trains.
    """
    if wanted is not None and wanted >= len(handles):
        return Refusal(
            f"--loader {wanted}: the script's loaders are numbered from 0, "
            f"and the last is {len(handles) - 1}",
            "run with --dry-run to see them.",
            usage=True,
        )
    if wanted is not None and wanted not in training:
        return Refusal(
            f"--loader {wanted} yields nothing between optimizer steps",
            f"loaders that do: {', '.join(map(str, training))}.",
            usage=True,
        )
    handle = handles[training[0] if wanted is None else wanted]
    if handle.cannot_steer:
        return Refusal(
            f"the training loader ({handle.place}) cannot be steered: {handle.cannot_steer}",
            "give the DataLoader a batch_size.",
            door="template",
        )
    reason, remedy = handle.why_dispatched()
    if reason:
        return Refusal(f"the training loader ({handle.place}) cannot be steered: {reason}", remedy)
    return handle


def steps_ahead(handle: LoaderHandle, batches_a_cycle: int, num_cycles: int) -> int:
    """Steps that the script makes with batches that it holds: one, or a queue that a thread fills.

    Args:
        batches_a_cycle: of this loader.
        num_cycles: so far.
    """
    num_batches, since = handle.taken_ahead
    needed = (num_batches - 1) // batches_a_cycle + 1
    cycles = needed - (num_cycles - since)
    return cycles if 0 < cycles <= MOST_AHEAD else 0
