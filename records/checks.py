"""Checks beside the sizes: a step of the last batch's length."""

from __future__ import annotations

from typing import Literal

from .base import Record

Outcome = Literal[
    "ok",
    "out_of_memory",  # the allocator, the runtime or the kernel refused memory
    "crashed",  # the process died by a signal or exit code that is not about memory
    "hung",  # nothing was heard for longer than the deadline
    "exception",  # the script raised something that is not about memory
    "wrong_size",  # another batch size arrived than the one asked for
    "no_step",  # batches flowed, the optimizer did not step
    "script_ended",  # the script finished before the window was complete
    "interrupted",  # Ctrl-C, SIGTERM or SIGHUP; the detail says which
]

Loss = Literal["mean", "sum", "contrastive"]


class TailCheck(Record, frozen=True, kw_only=True):
    """The observed outcome of a step of the real tail length.

    Attributes:
        num_samples: samples in the last batch of the epoch.
        outcome: `ok`, or the way it failed.
        num_non_finite: parameter tensors that hold NaN or infinity after this step; `None` where
            nobody looked.
        num_steps: steps of this length that were made.
        num_norms: BatchNorm layers whose running statistics were read before and after.
        num_non_finite_norms: those of them that hold NaN or infinity afterwards.
        running_var_before, running_var_after: mean running variance of the layer that moved the
            most, before and after these steps.
    """

    num_samples: int
    outcome: Outcome
    detail: str = ""
    num_non_finite: int | None = 0
    num_steps: int | None = None
    num_norms: int | None = None
    num_non_finite_norms: int = 0
    running_var_before: float | None = None
    running_var_after: float | None = None


class LossCheck(Record, frozen=True, kw_only=True):
    """How the loss reduces a batch, where an older version measured it.

    Attributes:
        reduction: `None` where it could not be told.
    """

    reduction: Loss | None = None
