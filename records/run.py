"""One run: the device, the trials, the faults; this is what `record.json` holds."""

from __future__ import annotations

from typing import Literal

from .base import SCHEMA_VERSION, Record
from .callback_observations import Observed
from .checks import LossCheck, Outcome
from .distribution import Distribution
from .edit import EditCheck
from .explained import MemoryExplained
from .fake_step import MemoryPrior
from .goal import Goal
from .script import Discovery, FileTouched, ScriptInfo
from .trial import Trial

RunState = Literal["running", "finished", "interrupted", "failed"]


class DeviceInfo(Record, frozen=True, kw_only=True):
    """The device that was measured.

    Attributes:
        kind: torch's name of the device type.
        total_bytes: memory of the device; on a CPU what the cgroup or the machine has.
        capacity_bytes: what the script can have: total, less other processes, or the limit.
        capacity_source: how that was found.
        limit_bytes: from `--memory-limit`.
    """

    kind: str
    name: str
    index: int | None = None
    uuid: str | None = None
    total_bytes: int
    capacity_bytes: int
    capacity_source: str
    limit_bytes: int | None = None
    num_cores: int | None = None


class Versions(Record, frozen=True, kw_only=True):
    """Versions of what measured the numbers."""

    batchadvisor: str
    python: str
    torch: str
    cuda: str | None = None
    driver: str | None = None
    platform: str = ""


class Fault(Record, frozen=True, kw_only=True):
    """A failure outside any trial: at start, during discovery, or of the tool's own parts."""

    outcome: Outcome
    detail: str
    worker: int
    log: str | None = None


START_SHARE = 1 / 3
"""Share of the budget that the first start of the script may take; the rest is for trials."""


class RunRecord(Record, frozen=True, kw_only=True):
    """All that one run measured. Advice and reports are made from this and nothing else.

    Attributes:
        elapsed_s: wall time spent so far, over all resumed parts.
        search_s: the part of it that the budget bounds: all but what the first start of the script
            took beyond `START_SHARE` of the budget.
        machine: tells hosts apart, and a host before and after it was started anew; `None` where
            the system does not tell.
        observed: what a callback saw of a training of the user's own; `None` where the sizes were
            steered, by `run`.
        distribution: the ranks, where the script was started as a job of several.
        loss: how the loss reduces a batch, in records of versions that measured it.
        doubts: about the run as a whole: of a callback's loop, or of what a size of a script means.
        explained: where the memory goes; `None` where nobody looked.
        edit: what the recommended change did to the script; `None` where nobody tried it.
        prior: the memory of steps on fake tensors; `None` where memory is not what is searched for.
        variables: that the script's processes had beside the user's own, since others used its
            cores; `None` where nobody looked.
    """

    schema_version: str = SCHEMA_VERSION
    state: RunState
    started_at: str
    command: tuple[str, ...]
    script: ScriptInfo
    goal: Goal
    versions: Versions | None = None
    device: DeviceInfo | None = None
    discovery: Discovery | None = None
    trials: tuple[Trial, ...] = ()
    faults: tuple[Fault, ...] = ()
    files: tuple[FileTouched, ...] = ()
    doubts: tuple[str, ...] = ()
    stop_reason: str = ""
    num_workers_started: int = 0
    elapsed_s: float = 0.0
    search_s: float = 0.0
    observed: Observed | None = None
    distribution: Distribution | None = None
    loss: LossCheck | None = None
    explained: MemoryExplained | None = None
    prior: MemoryPrior | None = None
    machine: str | None = None
    edit: EditCheck | None = None
    variables: dict[str, str] | None = None

    @property
    def usual_trial(self) -> Trial | None:
        """The timed trial of the size that a watched loop met most often."""
        known = {
            trial.batch_size: trial for trial in reversed(self.trials) if trial.ran and trial.step_s
        }
        sizes = self.observed.sizes if self.observed is not None else ()
        return next((known[size.batch_size] for size in sizes if size.batch_size in known), None)
