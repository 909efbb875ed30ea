"""The records: everything that one room tells another, and what stands on disk.

Frozen, keyword-only structs (each class says both, since type checkers do not inherit them).
Units stand in the names (`_s`, `_bytes`, `_pct`, `_per_s`; `num_` for counts). What could not be
measured is `None`, and the struct's `unavailable` says why, keyed by the field's name; it is never
0, -1 or NaN.
"""

from __future__ import annotations

from typing import Literal

import msgspec

SCHEMA_VERSION = "1.0"
"""Major.minor. A reader takes any minor version of its own major one."""

Outcome = Literal[
    "ok",
    "out_of_memory",  # the allocator, the runtime or the kernel refused memory
    "crashed",  # the process died by a signal or exit code that is not about memory
    "hung",  # nothing was heard for longer than the deadline
    "exception",  # the script raised something that is not about memory
    "wrong_size",  # another batch size arrived than the one asked for
    "no_step",  # batches flowed, the optimizer did not step
    "script_ended",  # the script finished before the window was complete
    "interrupted",  # Ctrl-C
]
TrialKind = Literal["fit", "timed"]
Purpose = Literal["search", "confirm", "tail"]
GoalKind = Literal["knee", "throughput", "memory", "energy"]
Limit = Literal[
    "input",  # waiting for the DataLoader
    "host",  # Python, operator dispatch, launches
    "synchronisation",  # the host waits for the device, and the device then for the host
    "communication",  # collectives that no computation covers
    "copies",  # copies that no kernel covers
    "small kernels",  # kernels run all the time, but do not fill the device
    "memory",  # a larger batch would pay and does not fit
    "saturated",  # the device computes all the time
    "cannot tell",
]
RunState = Literal["running", "finished", "interrupted", "failed"]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all records."""


# ------------------------------------------------------------------------------- measurements


class Spread(Record, frozen=True, kw_only=True):
    """A median with its order-statistic confidence interval.

    Attributes:
        median, low, high: in the unit of the field that holds the spread.
        num_samples: how many values stand behind it.
        confidence: nominal coverage of [low, high], 0..1.
    """

    median: float
    low: float
    high: float
    num_samples: int
    confidence: float

    @property
    def relative_half_width(self) -> float:
        """Half the interval over the median; 0.02 means ±2 %."""
        return (self.high - self.low) / 2 / self.median if self.median > 0 else float("inf")


class Memory(Record, frozen=True, kw_only=True):
    """Peak memory of one trial, caches emptied and peaks reset before it.

    Attributes:
        peak_bytes: the figure that laws and limits use; `peak_source` says what it is.
        allocated_bytes, reserved_bytes: peaks of torch's allocator; `None` on a CPU.
        process_bytes: this process as the driver (GPU) or the kernel (CPU) sees it.
        device_used_bytes: everything on the device, other processes included.
        num_alloc_retries: how often the allocator had to flush its cache and try again.
    """

    peak_bytes: int
    peak_source: str
    allocated_bytes: int | None = None
    reserved_bytes: int | None = None
    process_bytes: int | None = None
    device_used_bytes: int | None = None
    num_alloc_retries: int | None = None
    unavailable: dict[str, str] = {}


class OperatorTime(Record, frozen=True, kw_only=True):
    """Time of one operator in the profiled window; self time, summed over threads."""

    name: str
    num_calls: int
    self_s: float


class KernelTime(Record, frozen=True, kw_only=True):
    """Time of one GPU kernel in the profiled window."""

    name: str
    num_calls: int
    total_s: float
    occupancy_pct: float | None = None


class IdleShares(Record, frozen=True, kw_only=True):
    """Shares of the window in which nothing ran on the GPU, percent, by cause.

    The causes from `input_pct` to `tail_pct` add up to `total_pct`.

    Attributes:
        input_pct: the host waited for its DataLoader.
        synchronize_pct: the host was inside calls that wait for the device.
        launch_pct: the host was inside calls that launch kernels.
        call_pct: the host was inside other API calls: copies, allocations.
        host_pct: Python and operator dispatch.
        launch_latency_pct: launched in time, started within 30 us.
        dependency_pct: launched in time, started later: it waited for another stream.
        unknown_pct: the launch is not in the trace.
        tail_pct: after the last activity of the window.
        drained_pct: the part that began while the host waited for the device, so that nothing
            was queued; cuts across the causes of the host.
    """

    total_pct: float
    input_pct: float
    synchronize_pct: float
    launch_pct: float
    call_pct: float
    host_pct: float
    launch_latency_pct: float
    dependency_pct: float
    unknown_pct: float
    tail_pct: float
    drained_pct: float = 0.0


class Profile(Record, frozen=True, kw_only=True):
    """What the profiled window of one trial showed. Shares are of the window unless told otherwise.

    Attributes:
        trace: path of the trace, relative to the record's folder.
        num_steps: profiled steps.
        busy_pct: share of the window in which the device did anything (kernels, copies, sets).
        kernel_pct: share in which a kernel ran.
        compute_pct: share in which a kernel ran that is no communication.
        communication_pct, exposed_communication_pct: communication, and the part of it in which
            nothing was computed.
        exposed_copy_pct: copies and sets while no kernel ran.
        sm_efficiency_pct: estimated, an upper bound (see probes/trace).
        sm_efficiency_computing_pct: the same over the time in which something was computed.
        occupancy_pct: achieved occupancy, duration-weighted over kernels, estimated.
        tensor_core_pct: share of the compute kernels' time in kernels whose name proves tensor
            cores; a lower bound.
        tensor_core_unknown_pct: share of it in kernels whose name cannot tell.
        short_kernel_pct: share of the kernels' time in kernels shorter than 10 us.
        kernels_per_launch: kernels over the calls that launched them; above 1 with CUDA graphs.
        device_wait_pct: share in which the host waited for the device.
        idle: why nothing ran on the GPU.
        operators_pct: share of the window in which the CPU was inside an operator.
        input_wait_pct: share of the window in which the script waited for its DataLoader.
        operators, kernels: the most expensive ones first.
        losses: what of the trace could not be read; empty if nothing.
    """

    trace: str | None = None
    num_steps: int = 0
    busy_pct: float | None = None
    kernel_pct: float | None = None
    compute_pct: float | None = None
    communication_pct: float | None = None
    exposed_communication_pct: float | None = None
    exposed_copy_pct: float | None = None
    sm_efficiency_pct: float | None = None
    sm_efficiency_computing_pct: float | None = None
    occupancy_pct: float | None = None
    tensor_core_pct: float | None = None
    tensor_core_unknown_pct: float | None = None
    short_kernel_pct: float | None = None
    kernels_per_launch: float | None = None
    device_wait_pct: float | None = None
    idle: IdleShares | None = None
    operators_pct: float | None = None
    input_wait_pct: float | None = None
    losses: str = ""
    operators: tuple[OperatorTime, ...] = ()
    kernels: tuple[KernelTime, ...] = ()
    unavailable: dict[str, str] = {}


class Counters(Record, frozen=True, kw_only=True):
    """What NVML said while a window ran: medians over its samples, unless told otherwise below.

    Attributes:
        window_s: how long the window lasted; `energy_j` was used in it.
        utilization_pct: share of time in which at least one kernel ran, however small.
        memory_used_bytes: the highest value seen on the device, other processes included.
        process_memory_bytes: the highest value seen of the probed processes alone.
        energy_j: the driver's energy counter, end of the window less its begin.
        throttle_reasons: what lowered the clocks in any sample, the most frequent first; an idle
            GPU is no reason.
        throttled_pct: share of samples in which a power or thermal limit lowered the clocks.
        other_processes: compute processes on the GPU that are not the probed ones.
        sm_active_pct: share of multiprocessors that had work, averaged over the window.
        sm_occupancy_pct: resident warps over the most that the hardware holds.
        tensor_active_pct: share of time in which tensor cores worked.
        dram_active_pct: memory bandwidth used over the theoretical maximum.
        pcie_tx_bytes_per_s, pcie_rx_bytes_per_s: from and to the GPU.
    """

    num_samples: int = 0
    window_s: float | None = None
    utilization_pct: float | None = None
    memory_used_bytes: int | None = None
    process_memory_bytes: int | None = None
    power_w: float | None = None
    energy_j: float | None = None
    temperature_c: float | None = None
    sm_clock_mhz: float | None = None
    throttle_reasons: tuple[str, ...] = ()
    throttled_pct: float | None = None
    other_processes: tuple[str, ...] = ()
    sm_active_pct: float | None = None
    sm_occupancy_pct: float | None = None
    tensor_active_pct: float | None = None
    dram_active_pct: float | None = None
    pcie_tx_bytes_per_s: float | None = None
    pcie_rx_bytes_per_s: float | None = None
    unavailable: dict[str, str] = {}


class TailCheck(Record, frozen=True, kw_only=True):
    """What a step of the real tail length did, as seen.

    Attributes:
        num_samples: samples in the last batch of the epoch.
        outcome: `ok`, or the way it failed.
        num_non_finite: parameter tensors that hold NaN or infinity after this step.
    """

    num_samples: int
    outcome: Outcome
    detail: str = ""
    num_non_finite: int = 0


class TrialRequest(Record, frozen=True, kw_only=True):
    """One size to run.

    Attributes:
        batch_size: samples per micro-batch of the primary loader.
        kind: `fit` (two optimizer steps, memory only) or `timed`.
        purpose: why it runs; only `confirm` trials decide the recommendation.
        fresh_process: start a new worker for it.
        profile: whether a profiled window follows the timed one.
        reason: one line for people.
    """

    batch_size: int
    kind: TrialKind
    purpose: Purpose = "search"
    fresh_process: bool = False
    profile: bool = False
    reason: str = ""


class Trial(Record, frozen=True, kw_only=True):
    """One size, one device, one outcome.

    Attributes:
        ordinal: position in the record, from 0; `samples.jsonl` refers to it.
        worker: which worker process ran it, from 0.
        arrived_batch_size: the size that really reached the training loop.
        size_proof: `shape` (a tensor axis has that length), `indices` (so many samples were
            fetched from the dataset), `` (nothing arrived).
        micro_batches: batches per optimizer step.
        step_s: seconds per optimizer step, unprofiled; `None` for fit trials.
        samples_per_s: from the same steps.
        input_wait_s: seconds per step spent waiting for the loader.
        samples_per_joule: samples over the energy that the device took for them.
        elapsed_s: wall time of the whole trial, warm-up and profile included.
        doubts: what may have disturbed the times.
    """

    ordinal: int
    worker: int
    batch_size: int
    kind: TrialKind
    purpose: Purpose
    outcome: Outcome
    detail: str = ""
    arrived_batch_size: int | None = None
    size_proof: Literal["shape", "indices", ""] = ""
    micro_batches: int | None = None
    num_warmup_steps: int = 0
    step_s: Spread | None = None
    samples_per_s: Spread | None = None
    input_wait_s: Spread | None = None
    samples_per_joule: float | None = None
    memory: Memory | None = None
    profile: Profile | None = None
    counters: Counters | None = None
    tail: TailCheck | None = None
    elapsed_s: float = 0.0
    doubts: tuple[str, ...] = ()
    unavailable: dict[str, str] = {}

    @property
    def ran(self) -> bool:
        """Whether the asked size arrived and an optimizer step was made with it."""
        return self.outcome == "ok" and self.arrived_batch_size == self.batch_size


# ------------------------------------------------------------------------- what the script is


class SourceLine(Record, frozen=True, kw_only=True):
    """A place in the user's code."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class BatchSizeSource(Record, frozen=True, kw_only=True):
    """Where the batch size is written down, so that the advice can name the line to change.

    Attributes:
        place: the line.
        before: the text that sets the size, `batch_size=16`.
        template: the same with `{}` in place of the number; empty if the place is only known
            roughly.
        option: the command-line option that sets it, `--batch-size`, if there is one.
    """

    place: SourceLine
    before: str
    template: str = ""
    option: str | None = None


class LoaderInfo(Record, frozen=True, kw_only=True):
    """A DataLoader that the script made.

    Attributes:
        ordinal: in the order of creation, from 0; `--loader N` takes it.
        batch_size: what the script asked for; `None` when the dataset batches itself.
        num_samples: what one epoch draws from the sampler; `None` if it has no length.
        steered: `exact` (sizes are ours), `approximate` (a batch sampler's grouping is lost),
            `no: reason`.
    """

    ordinal: int
    place: SourceLine | None
    batch_size: int | None
    num_samples: int | None
    drop_last: bool
    num_workers: int
    sampler: str
    iterable: bool
    steered: str
    trains: bool = False
    source: BatchSizeSource | None = None


class OptimizerInfo(Record, frozen=True, kw_only=True):
    """An optimizer that the script made."""

    ordinal: int
    place: SourceLine | None
    name: str
    learning_rate: float | None
    num_parameters: int
    trains: bool = False


class NormLayers(Record, frozen=True, kw_only=True):
    """Normalisation layers in the model, counted by kind."""

    batch_norm: int = 0
    sync_batch_norm: int = 0
    group_norm: int = 0
    instance_norm: int = 0
    layer_norm: int = 0


class Discovery(Record, frozen=True, kw_only=True):
    """What steering found in the running script.

    Attributes:
        primary_loader: ordinal of the loader whose size is steered; others keep their ratio.
        native_batch_size: samples per micro-batch as the script is written.
        micro_batches: batches per optimizer step (gradient accumulation).
        parameter_device: where the optimizer's parameters live, as torch names it.
        setup_s: from process start to the end of the second optimizer step.
        native_step_s: the last native step, a first guess of the cost (not settled).
    """

    loaders: tuple[LoaderInfo, ...]
    optimizers: tuple[OptimizerInfo, ...]
    primary_loader: int
    native_batch_size: int
    micro_batches: int
    parameter_device: str
    num_parameters: int
    norm_layers: NormLayers | None
    setup_s: float
    native_step_s: float
    unavailable: dict[str, str] = {}

    @property
    def primary(self) -> LoaderInfo:
        """The loader whose size is steered."""
        return next(one for one in self.loaders if one.ordinal == self.primary_loader)


class ScriptInfo(Record, frozen=True, kw_only=True):
    """The command that was probed."""

    path: str
    arguments: tuple[str, ...] = ()


class FileTouched(Record, frozen=True, kw_only=True):
    """A file or folder that the script itself opened for writing, made, renamed or removed."""

    path: str
    action: Literal["write", "mkdir", "rename", "remove", "save (not written)"]


# ---------------------------------------------------------------------------------- the device


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
    """What the numbers were measured with."""

    batchadvisor: str
    python: str
    torch: str
    cuda: str | None = None
    driver: str | None = None
    platform: str = ""


# --------------------------------------------------------------------------------- the run


class Goal(Record, frozen=True, kw_only=True):
    """What was asked for.

    Attributes:
        kind: `knee` (the smallest size within `tolerance` of the best throughput), `throughput`
            (the fastest), `memory` (the largest) or `energy` (the most samples per joule).
        margin: share of the capacity to leave free, 0..1.
        tolerance: throughput that a smaller size may cost under `knee`, 0..1.
        budget_s: wall time for all trials.
        sizes: try exactly these.
    """

    kind: GoalKind = "knee"
    margin: float = 0.05
    tolerance: float = 0.05
    budget_s: float = 120.0
    max_batch: int | None = None
    start: int | None = None
    sizes: tuple[int, ...] = ()
    profile: bool = True
    keep_effective_batch: bool = False


class Fault(Record, frozen=True, kw_only=True):
    """A failure outside any trial: at start, during discovery, or of the tool's own parts."""

    outcome: Outcome
    detail: str
    worker: int
    log: str | None = None


class RunRecord(Record, frozen=True, kw_only=True):
    """All that one run measured. Advice and reports are made from this and nothing else.

    Attributes:
        elapsed_s: wall time spent so far, over all resumed parts.
        search_s: the part of it that was spent after discovery, which the budget bounds.
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


# --------------------------------------------------------------------------------- the advice


class Evidence(Record, frozen=True, kw_only=True):
    """One number behind a finding."""

    metric: str
    value: float | str
    threshold: float | str | None = None


class Finding(Record, frozen=True, kw_only=True):
    """Something the user should know, with its evidence and what to do about it."""

    rule: str
    severity: Literal["error", "warning", "info"]
    message: str
    evidence: tuple[Evidence, ...] = ()
    remedy: str = ""
    confidence: Literal["measured", "estimate"] = "measured"


class Choice(Record, frozen=True, kw_only=True):
    """A size that ran, with what was measured at it."""

    batch_size: int
    trial: int
    samples_per_s: Spread | None
    step_s: Spread | None
    peak_bytes: int | None
    epoch_s: Spread | None = None
    samples_per_joule: float | None = None


class Tail(Record, frozen=True, kw_only=True):
    """The last batch of an epoch, by arithmetic."""

    num_samples: int
    batch_size: int
    drop_last: bool
    steps_per_epoch: int
    last_batch: int
    dropped: int
    weight: float
    nearest_clean: tuple[int, ...] = ()


class Training(Record, frozen=True, kw_only=True):
    """What the recommended size does to the training.

    Attributes:
        effective_before, effective_after: samples per optimizer step.
        steps_before, steps_after: optimizer steps per epoch.
        micro_batches: accumulation that the recommendation uses.
        keep_accumulation: accumulation that would keep the old effective batch, if any does.
        rule, rule_source: the learning-rate rule as a suggestion, and where it comes from.
    """

    effective_before: int
    effective_after: int
    steps_before: int | None
    steps_after: int | None
    micro_batches: int
    keep_accumulation: int | None
    learning_rate_before: float | None
    learning_rate_suggested: float | None
    rule: str
    rule_source: str


class MemoryLaw(Record, frozen=True, kw_only=True):
    """Peak memory = fixed + slope x batch size, fitted to trials.

    Attributes:
        residual: largest relative deviation of a point used.
        largest_estimate: the largest size that the law says fits; an estimate, never advised.
    """

    fixed_bytes: float
    slope_bytes: float
    residual: float
    sizes: tuple[int, ...]
    largest_estimate: int


class TimeLaw(Record, frozen=True, kw_only=True):
    """Step time = fixed + slope x batch size, fitted to trials."""

    fixed_s: float
    slope_s: float
    residual: float
    sizes: tuple[int, ...]


class Verdict(Record, frozen=True, kw_only=True):
    """What limits the step at one size.

    Attributes:
        larger_batch: whether a larger batch makes the step more efficient.
        gain_at_most: the factor on samples per second that a larger batch can reach at most.
        contributions: shares of the step that are no computation, 0..1, the largest first.
        confidence: `measured` from times or a trace, `estimate` where it follows from a model.
    """

    limit: Limit
    message: str
    evidence: tuple[Evidence, ...] = ()
    remedy: str = ""
    larger_batch: Literal["helps", "does not help", "unknown"] = "unknown"
    gain_at_most: float | None = None
    contributions: tuple[Evidence, ...] = ()
    confidence: Literal["measured", "estimate"] = "measured"


class Advice(Record, frozen=True, kw_only=True):
    """The answer. `recommended` is `None` when nothing that ran can be recommended."""

    schema_version: str = SCHEMA_VERSION
    goal: Goal
    headline: str
    reason: str
    sureness: Literal["confirmed", "measured once", "partial", "none"]
    recommended: Choice | None
    fastest: Choice | None
    largest: Choice | None
    native: Choice | None
    change: str
    verdict: Verdict
    training: Training | None
    tail: Tail | None
    tail_check: TailCheck | None
    memory_law: MemoryLaw | None
    time_law: TimeLaw | None
    findings: tuple[Finding, ...] = ()
    unavailable: dict[str, str] = {}


# ----------------------------------------------------------------------- traces read on their own


class StepTimes(Record, frozen=True, kw_only=True):
    """One profiler step of one GPU; shares are of its window.

    Attributes:
        window_s: from the end of the step before to the end of this one, GPU work included.
        host_s: the host's range of the step.
        input_pct, host_pct: the GPU stood still: for the DataLoader, for the rest of the host.
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


class TraceReport(Record, frozen=True, kw_only=True):
    """What one trace says of one GPU, or of a CPU where no GPU worked.

    Attributes:
        trace: path of the file.
        rank, world_size: as the trace states them.
        device: number of the GPU in the trace.
        window_s, window_source: the window of all shares, and what it is.
        step_s, step_source: mean time from step to step, and how it was measured.
        notes: what to know before the numbers are believed.
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
    steps: tuple[StepTimes, ...] = ()
    verdict: Verdict
    notes: tuple[str, ...] = ()


class RankTimes(Record, frozen=True, kw_only=True):
    """One rank in the collectives that all given ranks took part in.

    Attributes:
        communication_s: time of their kernels on this rank.
        transfer_s: the part that the quickest rank needed as well.
        wait_s: the rest: this rank waited for slower ones.
        caused_s: what the others waited in collectives that this rank was the last to enter.
        num_last: how many those were.
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
        whole = sum(one.communication_s for one in self.ranks)
        return sum(one.wait_s for one in self.ranks) / whole if whole > 0 else 0.0


class Analysis(Record, frozen=True, kw_only=True):
    """What `analyze` found.

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
