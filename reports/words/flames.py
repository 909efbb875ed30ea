"""What is said of flame graphs."""

from __future__ import annotations

from collections.abc import Sequence

from ...records import Flame
from ...units import format_seconds
from .wording import clean, plural

KINDS = {
    "python": "the script and libraries", "library": "torch's and Python's own frames",
    "module": "nn.Module", "annotation": "named ranges", "operator": "operators",
    "call": "calls of the GPU's API", "kernel": "GPU work", "group": "threads, backward pass",
}  # fmt: skip


def title_of(flame: Flame) -> str:
    """What the picture shows."""
    what = "GPU time by the stack that launched it"
    if flame.of == "host":
        what = "The host's time by stack"
    if not flame.num_steps:
        return f"{what}: {format_seconds(flame.total_s)}"
    return f"{what}: {format_seconds(flame.total_s / flame.num_steps)} a step"


def notes_of(flame: Flame) -> tuple[str, ...]:
    """What is left out, and what the picture does not say."""
    notes = []
    if flame.stacks:
        notes.append(
            "Modules of one kind are one. Frames of batchadvisor, and torch's own between a module "
            "and its forward, are not drawn; their time stands in what is around them."
        )
    if flame.num_left_out:
        notes.append(
            f"{plural(flame.num_left_out, 'block')} below {100 * flame.smallest:.2g}% of the whole "
            "are not drawn."
        )
    notes += [f"Left out: {clause}." for clause in flame.left_out]
    if flame.of == "GPU":
        notes.append(
            "The backward pass stands under the line whose gradient it is, where the trace links "
            "them. Work that ran at once counts in full for each."
        )
    elif flame.stacks:
        notes.append(
            "Recording stacks slows the host, short functions most: compare shares, not times."
        )
    if not flame.stacks:
        notes.append("Operators alone: Python's stacks were not recorded.")
    return tuple(map(clean, notes))


def kinds_of(flames: Sequence[Flame]) -> list[tuple[str, str]]:
    """The kinds of frames that are in the pictures, with their meaning."""
    present = {frame.kind for flame in flames for frame in flame.frames}
    return [(kind, text) for kind, text in KINDS.items() if kind in present]
