"""One trial: one size, one device, one outcome, and all that was measured in it."""

from __future__ import annotations

from typing import Any, Literal

from .base import Count, Record, Spread
from .checks import Outcome, TailCheck
from .counters import Counters
from .creep import KeptTensors
from .entered import Entered
from .flops import StepFlops
from .memory import Memory
from .profile import Profile
from .quality import Cause, StepQuality
from .request import Purpose, TrialKind, TrialRequest
from .tokens import ChosenBatch, CountedTokens, LengthCensus, LengthChoice, Tokens


class InputSize(Record, frozen=True, kw_only=True):
    """How large the batches of a trial were: elements of their tensors over their samples.

    Padding is included. Only kept where it is not the same for all batches, or where no axis of
    them shows how many samples they hold.

    Attributes:
        chosen: the batch that the trial began with, where its samples were chosen by length.
        census: of the samples that it was chosen from.
    """

    num_batches: int
    smallest: float
    largest: float
    chosen: ChosenBatch | None = None
    census: LengthCensus | None = None


class Turns(Record, frozen=True, kw_only=True):
    """Readings of sizes that took turns.

    Attributes:
        sizes: ascending.
        step_s: seconds per optimizer step, mean of a turn; one row a round, one column a size.
            `None` where a turn was not of the usual kind (a step that a scaler skipped).
        lost_s: seconds of these that the steps waited for a core, by the kernel's count; empty
            where that was not read. What a turn would have taken alone lies between.
        cpu_s: CPU seconds of all threads of the process in the same steps, mean of a turn; empty
            where that was not read, or a device goes on by itself.
        workers: by size, the process that it had to itself, as in the trial; empty where all ran
            in one.
        real: real tokens of a step, mean of the same steps; empty where they are not surely known.
        positions, squares: of the same steps, as in the tokens of a trial; empty where `real` is.
        counted: by size, what the batches of all of its turns held; empty where `real` is.
        unsure: by size, what its mean batch may be off by, a share (standard error); filled where
            rates are put on the scale of real tokens, and never stored.
    """

    sizes: tuple[Count, ...]
    step_s: tuple[tuple[float | None, ...], ...]
    lost_s: tuple[tuple[float, ...], ...] = ()
    cpu_s: tuple[tuple[float | None, ...], ...] = ()
    workers: tuple[int, ...] = ()
    real: tuple[tuple[float | None, ...], ...] = ()
    positions: tuple[tuple[float | None, ...], ...] = ()
    squares: tuple[tuple[float | None, ...], ...] = ()
    counted: tuple[CountedTokens, ...] = ()
    unsure: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        rows = (*self.step_s, *self.lost_s, *self.cpu_s)
        rows += (*self.real, *self.positions, *self.squares)
        if any(len(row) != len(self.sizes) for row in rows):
            msg = f"a round of {len(self.sizes)} sizes that took turns has another number of times"
            raise ValueError(msg)
        if self.workers and len(self.workers) != len(self.sizes):
            msg = f"{len(self.sizes)} sizes that took turns have another number of processes"
            raise ValueError(msg)


class RankTrial(Record, frozen=True, kw_only=True):
    """One rank's part in a trial that all ranks ran in lock-step.

    Attributes:
        step_s: seconds per optimizer step as this rank saw it, waiting for the others included.
        peak_bytes: as in the trial's memory.
    """

    rank: int
    outcome: Outcome
    detail: str = ""
    step_s: Spread | None = None
    input_wait_s: Spread | None = None
    peak_bytes: int | None = None


class Trial(Record, frozen=True, kw_only=True):
    """One size, one device, one outcome.

    Attributes:
        ordinal: position in the record, from 0; `samples.jsonl` refers to it.
        worker: which worker process ran it, from 0.
        arrived_batch_size: the size that really reached the training loop.
        batch_size: that was asked for, on the axis of the loader: samples, or a budget.
        mean_arrived: where the collate function leaves samples out, how many of a batch reached
            the training loop on average; `arrived_batch_size` is then what was drawn for it. The
            same where the size is a budget, by which the batches that arrived were cut.
        size_proof: `shape` (a tensor axis has that length), `indices` (so many samples were
            fetched from the dataset), `asked` (the script was started with it and nothing shows
            it), `` (nothing arrived).
        micro_batches: batches per optimizer step.
        filled_after: steps of the warm-up after which the loader's workers had made every batch
            that it may hold ready; `None` where they had not, or nothing tells.
        steps_elsewhere: further optimizer steps, on batches of loaders that keep the script's own
            size (other tasks), in one of the steps that were timed; their mean.
        steps_per_batch: optimizer steps on each batch; 0 where most batches had no number of them
            in common, `None` where nobody looked.
        step_s: seconds per optimizer step, unprofiled; only of timed trials. Where each batch is
            stepped on more than once (see `Discovery`), of all steps on a batch.
        samples_per_s: from the same steps; of samples that reached the training loop.
        input_wait_s: seconds per step spent waiting for the loader.
        samples_per_joule: samples over the energy that the device took for them.
        predicted_bytes: the peak that was expected before it ran, by steps on fake tensors and the
            peaks measured by then; `None` where there were no such steps.
        kept: tensors that live more since the last look; `None` where none was taken.
        entered: what a step of the warm-up trained on; `None` where nobody looked, or nothing shows
            it.
        elapsed_s: wall time of the whole trial, warm-up and profile included.
        ended_s: when it was over, in seconds since the search began.
        doubts: what may have disturbed the times.
        quality: which timed steps were disturbed, and what the step time is therefore.
        causes: what disturbed the trial, by name.
        tool_cpu_pct: CPU time of batchadvisor's own process during the trial, in percent of the
            trial's time on one core.
        tokens: of the timed steps, where batches are sequences.
        flops: of one step beside the timed ones.
        ranks: what each rank measured, where several ran the trial in lock-step; the trial's own
            times are those of the slowest rank, its memory that of the fullest.
        largest_tensor: shape of the largest tensor at hand where the script raised.
        aside: the loader whose batch was worked on then, if not one that is steered.
    """

    ordinal: int
    worker: int
    batch_size: Count
    kind: TrialKind
    purpose: Purpose
    outcome: Outcome
    detail: str = ""
    arrived_batch_size: int | None = None
    mean_arrived: float | None = None
    size_proof: Literal["shape", "indices", "asked", ""] = ""
    micro_batches: Count | None = None
    steps_elsewhere: float = 0.0
    steps_per_batch: int | None = None
    num_warmup_steps: int = 0
    filled_after: int | None = None
    step_s: Spread | None = None
    samples_per_s: Spread | None = None
    input_wait_s: Spread | None = None
    samples_per_joule: float | None = None
    memory: Memory | None = None
    predicted_bytes: int | None = None
    kept: KeptTensors | None = None
    profile: Profile | None = None
    counters: Counters | None = None
    tail: TailCheck | None = None
    inputs: InputSize | None = None
    entered: Entered | None = None
    tokens: Tokens | None = None
    flops: StepFlops | None = None
    turns: Turns | None = None
    elapsed_s: float = 0.0
    ended_s: float | None = None
    doubts: tuple[str, ...] = ()
    quality: StepQuality | None = None
    causes: tuple[Cause, ...] = ()
    tool_cpu_pct: float | None = None
    ranks: tuple[RankTrial, ...] = ()
    largest_tensor: tuple[int, ...] = ()
    aside: str = ""
    unavailable: dict[str, str] = {}

    @property
    def ran(self) -> bool:
        """Whether the asked size arrived and an optimizer step was made with it."""
        return self.outcome == "ok" and self.arrived_batch_size == self.batch_size

    @property
    def says_of_size(self) -> bool:
        """Whether it was made for its size, not for an epoch's end or for lengths."""
        return self.purpose not in ("tail", "lengths")

    @property
    def arrived_share(self) -> float:
        """Samples that reached the training loop over those that were drawn, or over the budget."""
        return 1.0 if self.mean_arrived is None else self.mean_arrived / self.batch_size

    @property
    def chosen_length(self) -> LengthChoice:
        """Which samples it began with, where lengths were asked for."""
        chosen = None if self.inputs is None else self.inputs.chosen
        return "" if chosen is None else chosen.length

    @property
    def contended(self) -> bool:
        """Whether its steps were disturbed so often that clean ones could not be told apart."""
        return self.quality is not None and self.quality.method == "low quantile"

    @property
    def doubtful(self) -> bool:
        """Whether something may have disturbed its times."""
        return bool(self.doubts) or self.contended

    @property
    def cut_short(self) -> bool:
        """Whether this was a comparison that the end of the script cut short.

        It says nothing about its sizes, each of which ran before.
        """
        return self.kind == "turns" and self.outcome == "script_ended"


def trial_of(
    request: TrialRequest, *, ordinal: int, worker: int, outcome: Outcome, **measured: Any
) -> Trial:
    """Makes the trial that a request became.

    Args:
        measured: the other fields of `Trial`.
    """
    return Trial(
        ordinal=ordinal,
        worker=worker,
        batch_size=request.batch_size,
        kind=request.kind,
        purpose=request.purpose,
        outcome=outcome,
        **measured,
    )
