"""Traces that were read on their own, without a run."""

from __future__ import annotations

from .advice import Verdict
from .base import SCHEMA_VERSION, Record
from .flames import Flame
from .profile import Copies, Profile


class Breakdown(Record, frozen=True, kw_only=True):
    """Where the time of a step went, seconds; exclusive, the parts add up to `total_s`.

    Each moment belongs to the first of these that was going on, on any device or thread.
    """

    compute_s: float
    communication_s: float
    memcpy_s: float
    memset_s: float
    runtime_s: float
    input_s: float
    operator_s: float
    other_s: float
    total_s: float


class StepTimes(Record, frozen=True, kw_only=True):
    """One profiler step of one GPU; shares are of its window.

    Attributes:
        window_s: from the end of the step before to the end of this one, GPU work included.
        host_s: the host's range of the step.
        input_pct, host_pct: the GPU stood still: for the DataLoader, for the rest of the host and
            the launches.
        breakdown: where the time of the window went, on all devices and threads.
    """

    name: str
    window_s: float
    host_s: float
    busy_pct: float | None = None
    compute_pct: float | None = None
    exposed_communication_pct: float | None = None
    exposed_copy_pct: float | None = None
    input_pct: float | None = None
    host_pct: float | None = None
    breakdown: Breakdown | None = None


class TraceReport(Record, frozen=True, kw_only=True):
    """Figures of one trace for one GPU, or for a CPU where no GPU worked.

    Attributes:
        trace: path of the file.
        rank, world_size: as the trace states them.
        device: number of the GPU in the trace.
        window_s, window_source: the window of all shares, and what it is.
        step_s, step_source: mean time from step to step, and how it was measured.
        breakdown: where the time of a step went, on all devices and threads: the mean over the
            steps, or of the whole window where the trace has none.
        input_pct, host_pct, synchronisation_pct: the GPU stood still: for the DataLoader, for
            Python and launches, because the host had waited for it; what the verdict goes by.
            `None` where no GPU worked.
        copies: by direction, in the window.
        notes: what to know before the numbers are believed.
        flames: where the time went by stack, for a page; empty where nobody asked, or no stacks
            were recorded.
    """

    trace: str
    rank: int | None = None
    world_size: int | None = None
    device: int | None = None
    device_name: str = ""
    window_s: float = 0.0
    window_source: str = ""
    step_s: float | None = None
    step_source: str = ""
    profile: Profile
    breakdown: Breakdown | None = None
    input_pct: float | None = None
    host_pct: float | None = None
    synchronisation_pct: float | None = None
    copies: tuple[Copies, ...] = ()
    steps: tuple[StepTimes, ...] = ()
    verdict: Verdict
    notes: tuple[str, ...] = ()
    flames: tuple[Flame, ...] = ()


class RankTimes(Record, frozen=True, kw_only=True):
    """One rank in the collectives that all given ranks took part in.

    Attributes:
        communication_s: time of their kernels on this rank.
        transfer_s: the part that the quickest rank needed as well.
        wait_s: the rest: this rank waited for slower ones.
        caused_s: what the others waited in collectives that this rank was the last to enter, and
            its equal part where several came together.
        num_last: how many it entered last, clearly after any other.
    """

    rank: int
    communication_s: float
    transfer_s: float
    wait_s: float
    caused_s: float
    num_last: int


class Collectives(Record, frozen=True, kw_only=True):
    """The communication of one job, rank against rank.

    Attributes:
        world_size: ranks of the job; fewer may have a trace here, and the transfer is then an
            upper bound.
        num_matched: collectives that all ranks have.
        num_unmatched: communication kernels left out, all ranks together.
        straggler: the rank that the others waited for the most; `None` if none stands out.
        straggler_share: its part of all waiting, 0..1.
    """

    ranks: tuple[RankTimes, ...]
    world_size: int | None
    num_matched: int
    num_unmatched: int
    straggler: int | None = None
    straggler_share: float | None = None

    @property
    def wait_share(self) -> float:
        """Waiting for slower ranks over all time in the matched collectives, 0..1."""
        whole = sum(rank.communication_s for rank in self.ranks)
        return sum(rank.wait_s for rank in self.ranks) / whole if whole > 0 else 0.0


class Analysis(Record, frozen=True, kw_only=True):
    """The result of `analyze`.

    Attributes:
        verdict: of the whole job; `None` where the traces are of no common job.
        skipped: files of a folder that are no traces, with the reason.
    """

    schema_version: str = SCHEMA_VERSION
    traces: tuple[TraceReport, ...]
    collectives: Collectives | None = None
    verdict: Verdict | None = None
    skipped: dict[str, str] = {}
    unavailable: dict[str, str] = {}
