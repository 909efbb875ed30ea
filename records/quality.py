"""How good the times of a trial are: which steps were disturbed, and what disturbed them."""

from __future__ import annotations

from typing import Literal

from .base import Record

CauseKind = Literal[
    "processes",  # other programs ran on the cores
    "hypervisor",  # the host of a virtual machine gave the cores to others (steal)
    "quota",  # the cgroup's CPU quota was used up (throttled)
    "frequency",  # the cores ran slower than they may
    "threads",  # the script has more computing threads than it has cores
    "stopped",  # the process was stopped and continued
]


ANOTHER_HOUR = "run it at another hour"
"""A remedy, or the end of one, that several causes have."""


class Cause(Record, frozen=True, kw_only=True):
    """Something outside the script that took time from a trial, with what shows it.

    Attributes:
        message: a clause that can end a sentence: "other programs used 1.2 of 2 cores (rustc 0.9)".
        cores: cores that were taken, averaged over the trial, where that can be said.
        lost_s: seconds taken, where that can be said.
        remedy: what the user can do about it.
    """

    kind: CauseKind
    message: str
    cores: float | None = None
    lost_s: float | None = None
    remedy: str = ""


class PageFaults(Record, frozen=True, kw_only=True):
    """What it costs a step on a CPU to get its memory from the system.

    Attributes:
        num: of a step, on average over all but the one with the most.
        each_s: seconds of one, measured in the same process right after its steps, one thread
            alone. Several that fault at once wait for each other, so it is a lower bound.
        allocator: the C library and whether it gives freed memory back to the system as it does by
            default; the remedy is known for "glibc" alone.
    """

    num: float
    each_s: float
    allocator: Literal["glibc", "glibc, set by its variables", "other"]


StepMethod = Literal["clean steps", "low quantile", "all steps"]


class StepQuality(Record, frozen=True, kw_only=True):
    """Which of the timed steps were disturbed from outside, by the evidence that each carries.

    Attributes:
        num_steps: steps that were timed.
        num_clean: steps without evidence of a disturbance.
        num_disturbed: steps that show one. What is neither could not be judged.
        stalled_s: seconds that the disturbed steps took longer than a usual step, all together.
        longest_stall_s: of one step.
        num_slow: clean steps that took more than twice the usual time: logging, evaluation,
            saving. They belong to the script.
        slow_s: seconds that these took longer, all together, as far as the step time, which they
            are a part of where they come often, leaves them out.
        longest_slow_s: of one of them.
        num_collections: full collections of Python's garbage collector in the timed steps.
        collected_s: seconds that these add to a step on average; a part of its time.
        page_faults: where they may be a good part of a step on a CPU.
        cpu_s: CPU seconds of all threads of the process in one of the steps that the step time is
            made of, their mean; `None` where it was not read, or a device goes on by itself.
        method: what the trial's step time is. `clean steps`: the median over them. `low quantile`:
            the first quartile of all steps, where clean ones could not be told apart; the interval
            then reaches down to what the steps would have taken without the time that they waited
            for a core. `all steps`: the median over all, where no evidence could be read.
        unavailable: kinds of evidence that could not be read, and why.
    """

    num_steps: int
    num_clean: int
    num_disturbed: int
    stalled_s: float = 0.0
    longest_stall_s: float = 0.0
    num_slow: int = 0
    slow_s: float = 0.0
    longest_slow_s: float = 0.0
    num_collections: int = 0
    collected_s: float = 0.0
    page_faults: PageFaults | None = None
    cpu_s: float | None = None
    method: StepMethod = "clean steps"
    unavailable: dict[str, str] = {}
