"""Facts about the script that decisions ask for, and their defaults where no loop was found."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median_high

import msgspec

from ...records import Discovery, Trial
from .epoch_end import last_batch, own_samples


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about the script. The defaults hold where no training loop was found.

    Attributes:
        own_size: its own batch size; `None` where it is unknown.
        first_size: of its first process, with which a search begins.
        num_samples: what the steered loader draws in an epoch; `None` without a length, and where
            sizes do not count samples.
        num_units: what the sizes count, in all samples of an epoch; `None` if unknown.
        longest: sample, in the same units; 1 where sizes count samples.
        micro_batches: batches of an optimizer step.
        steps_per_batch: optimizer steps on each batch.
        pool: optimizer steps of a cycle, between which sizes do not change.
        native_step_s: seconds of a step of its own size; `None` where none was timed.
        setup_s: seconds from the start of a process to its first steps.
        process_per_size: whether each size has a process of its own.
        takes_turns: whether sizes can take turns, step by step.
        num_workers: data workers; `None` where they are unknown.
        in_this_process: whether the sizes go to a function of the caller's own process.
        has_batch_norm: whether the model has BatchNorm layers that are not synchronised.
    """

    own_size: int | None = None
    first_size: int | None = None
    num_samples: int | None = None
    num_units: int | None = None
    longest: int = 1
    micro_batches: int = 1
    steps_per_batch: int = 1
    pool: int = 1
    native_step_s: float | None = None
    setup_s: float = 0.0
    process_per_size: bool = False
    takes_turns: bool = False
    num_workers: int | None = None
    in_this_process: bool = False
    has_batch_norm: bool = False

    def epoch_samples(self) -> int | None:
        """Samples that a process draws in an epoch's training steps; `None` where unknown."""
        return None

    def last_batch(self, size: int) -> int | None:
        """Samples in a short last batch: 0 without one, `None` where that is unknown."""
        del size
        return None

    def why_unordered(self) -> str:
        """Why no trial could begin with the longest samples; empty where they could."""
        return ""


class FoundScript(Script, frozen=True, kw_only=True):
    """A script whose training loop was found.

    Attributes:
        discovery: what was found.
    """

    discovery: Discovery

    def epoch_samples(self) -> int | None:
        return own_samples(self.discovery)

    def last_batch(self, size: int) -> int | None:
        return last_batch(self.discovery, size)

    def why_unordered(self) -> str:
        if not self.discovery.traits.reorders_samples:
            return "only a DataLoader's samples can be ordered, and sizes went in another way"
        return self.discovery.unavailable.get("worst_case", "")


NOT_FOUND = Script()


def script_of(discovery: Discovery | None, trials: Sequence[Trial] = ()) -> Script:
    """The facts, as far as they are known.

    Args:
        trials: of the run so far; processes after the first may start sooner.
    """
    if discovery is None:
        return NOT_FOUND
    layers, counts = discovery.norm_layers, discovery.axis == "samples"
    return FoundScript(
        discovery=discovery,
        own_size=None if discovery.why_own_unknown else discovery.native_batch_size,
        first_size=discovery.native_batch_size,
        num_samples=discovery.primary.num_samples if counts else None,
        num_units=discovery.primary.num_samples if counts else discovery.primary.num_units,
        longest=discovery.primary.longest or 1,
        micro_batches=discovery.micro_batches,
        steps_per_batch=discovery.steps_per_batch,
        pool=discovery.pool,
        native_step_s=discovery.native_step_s,
        setup_s=median_high(_starts_s(trials) or [discovery.setup_s]),
        process_per_size=discovery.traits.process_per_size,
        takes_turns=discovery.traits.takes_turns,
        num_workers=discovery.primary.num_workers,
        in_this_process=discovery.traits.in_this_process,
        has_batch_norm=layers is not None and layers.batch_norm > 0,
    )


def _starts_s(trials: Sequence[Trial]) -> list[float]:
    """Seconds between the last trial of a process and the first of the next, without that trial.

    The first process of all reads from the disk what later ones find in memory; these start beside
    processes that end, or wait.
    """
    return [
        next_.ended_s - next_.elapsed_s - last.ended_s
        for last, next_ in pairwise(trials)
        if last.ended_s is not None
        and next_.ended_s is not None
        and next_.worker > last.worker
        and next_.ended_s - next_.elapsed_s > last.ended_s
    ]
