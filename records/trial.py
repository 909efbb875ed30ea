"""One trial: one size, one device, one outcome, and all that was measured in it."""

from __future__ import annotations

from typing import Any, Literal

from .base import Count, Record, Spread
from .checks import Outcome, TailCheck
from .idle import CallTime, LongestGap
from .request import Purpose, TrialKind, TrialRequest


class DeviceMemory(Record, frozen=True, kw_only=True):
    """Peak memory on one of several devices that hold parts of a model.

    Attributes:
        device: as torch names it.
        capacity_bytes: what the script can have of it.
    """

    device: str
    peak_bytes: int
    capacity_bytes: int


class Memory(Record, frozen=True, kw_only=True):
    """Peak memory of one trial, caches emptied and peaks reset before it.

    Attributes:
        peak_bytes: the figure that laws and limits use; `peak_source` says what it is.
        allocated_bytes, reserved_bytes: peaks of torch's allocator; `None` on a CPU.
        process_bytes: this process as the driver (GPU) or the kernel (CPU) sees it.
        device_used_bytes: everything on the device, other processes included.
        num_alloc_retries: how often the allocator had to flush its cache and try again.
        graph_pools_bytes: private pools of captured CUDA graphs at the end; no emptied cache gives
            them back. `None` where nobody can tell.
        earlier_pools_bytes: what such pools held as the trial began, of sizes that ran before in
            the same process; it is in `peak_bytes`.
        devices: each device of a model that is spread over several; empty otherwise. The other
            figures are then those of the fullest, in proportion to the smallest capacity.
    """

    peak_bytes: int
    peak_source: str
    allocated_bytes: int | None = None
    reserved_bytes: int | None = None
    process_bytes: int | None = None
    device_used_bytes: int | None = None
    num_alloc_retries: int | None = None
    graph_pools_bytes: int | None = None
    earlier_pools_bytes: int | None = None
    devices: tuple[DeviceMemory, ...] = ()
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
        launch_latency_pct: launched, and started within 30 us of that.
        dependency_pct: launched, and started later: it waited for another stream.
        unknown_pct: the launch is not in the trace.
        tail_pct: after the last activity of the window.
        drained_pct: the part that began while the host waited for the device, so that nothing
            was queued; cuts across the causes of the host other than its DataLoader.
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


class DeviceShare(Record, frozen=True, kw_only=True):
    """One GPU of several in the profiled window.

    Attributes:
        device: its number in the trace.
        busy_pct: share of the window in which it did anything.
        idle_pct: share in which it did nothing; of a pipeline, its bubble and whatever else
            keeps it waiting.
        dependency_pct: the part of it in which work was queued and waited for another stream or
            device.
    """

    device: int
    busy_pct: float
    idle_pct: float
    dependency_pct: float | None = None


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
        longest_gap: the longest time in which nothing ran on it.
        calls: calls of the GPU's API that take more than a fifth of the window, the most first.
        trains: whether something of the trace belongs to a backward pass or an optimizer; `None`
            where it holds no operators that would show it.
        unrecorded: why nothing is known of a device that the script surely used; empty if it is.
        operators_pct: share of the window in which the CPU was inside an operator.
        input_wait_pct: share of the window in which the script waited for its DataLoader.
        operators, kernels: the most expensive ones first.
        losses: what of the trace could not be read; empty if nothing.
        devices: each GPU, where several worked in one process; the other figures are those of
            the busiest.
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
    longest_gap: LongestGap | None = None
    calls: tuple[CallTime, ...] = ()
    trains: bool | None = None
    unrecorded: str = ""
    operators_pct: float | None = None
    input_wait_pct: float | None = None
    losses: str = ""
    operators: tuple[OperatorTime, ...] = ()
    kernels: tuple[KernelTime, ...] = ()
    devices: tuple[DeviceShare, ...] = ()
    unavailable: dict[str, str] = {}


class Counters(Record, frozen=True, kw_only=True):
    """What NVML said while a window ran: medians over its samples, unless told otherwise below.

    Attributes:
        window_s: how long the window lasted; `energy_j` was used in it.
        utilization_pct: share of time in which at least one kernel ran, however small.
        memory_used_bytes: the highest value seen on the device, other processes included.
        process_memory_bytes: the highest value seen of the probed processes alone.
        energy_j: the driver's energy counter, end of the window less its begin.
        energy_update_s: between two moves of the counter, where samples saw it stand still.
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
    energy_update_s: float | None = None
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


class InputSize(Record, frozen=True, kw_only=True):
    """How large the batches of a trial were: elements of their tensors over their samples.

    Padding is included. Only kept where it is not the same for all batches.
    """

    num_batches: int
    smallest: float
    largest: float


class Turns(Record, frozen=True, kw_only=True):
    """What sizes measured that took turns.

    Attributes:
        sizes: ascending.
        step_s: seconds per optimizer step, mean of a turn; one row a round, one column a size.
            `None` where a turn was not of the usual kind (a step that a scaler skipped).
        lost_s: seconds of these that the steps waited for a core, by the kernel's count; empty
            where that was not read. What a turn would have taken alone lies between.
    """

    sizes: tuple[Count, ...]
    step_s: tuple[tuple[float | None, ...], ...]
    lost_s: tuple[tuple[float, ...], ...] = ()

    def __post_init__(self) -> None:
        if any(len(row) != len(self.sizes) for row in (*self.step_s, *self.lost_s)):
            msg = f"a round of {len(self.sizes)} sizes that took turns has another number of times"
            raise ValueError(msg)


CauseKind = Literal[
    "processes",  # other programs ran on the cores
    "hypervisor",  # the host of a virtual machine gave the cores to others (steal)
    "quota",  # the cgroup's CPU quota was used up (throttled)
    "frequency",  # the cores ran slower than they may
    "threads",  # the script has more computing threads than it has cores
    "stopped",  # the process was stopped and continued
]


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
            garbage collection. They belong to the script.
        slow_s: seconds that these took longer, all together.
        longest_slow_s: of one of them.
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
    method: StepMethod = "clean steps"
    unavailable: dict[str, str] = {}


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
        mean_arrived: where the collate function leaves samples out, how many of a batch reached
            the training loop on average; `arrived_batch_size` is then what was drawn for it.
        size_proof: `shape` (a tensor axis has that length), `indices` (so many samples were
            fetched from the dataset), `asked` (the script was started with it and nothing shows
            it), `` (nothing arrived).
        micro_batches: batches per optimizer step.
        steps_elsewhere: further optimizer steps, on batches of loaders that keep the script's own
            size (other tasks), in one of the steps that were timed; their mean.
        steps_per_batch: optimizer steps on each batch; 0 where most batches had no number of them
            in common, `None` where nobody looked.
        step_s: seconds per optimizer step, unprofiled; only of timed trials. Where each batch is
            stepped on more than once (see `Discovery`), of all steps on a batch.
        samples_per_s: from the same steps; of samples that reached the training loop.
        input_wait_s: seconds per step spent waiting for the loader.
        samples_per_joule: samples over the energy that the device took for them.
        elapsed_s: wall time of the whole trial, warm-up and profile included.
        ended_s: when it was over, in seconds since the search began.
        doubts: what may have disturbed the times.
        quality: which timed steps were disturbed, and what the step time is therefore.
        causes: what disturbed the trial, by name.
        tool_cpu_pct: CPU time of batchadvisor's own process during the trial, in percent of the
            trial's time on one core.
        ranks: what each rank measured, where several ran the trial in lock-step; the trial's own
            times are those of the slowest rank, its memory that of the fullest.
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
    step_s: Spread | None = None
    samples_per_s: Spread | None = None
    input_wait_s: Spread | None = None
    samples_per_joule: float | None = None
    memory: Memory | None = None
    profile: Profile | None = None
    counters: Counters | None = None
    tail: TailCheck | None = None
    inputs: InputSize | None = None
    turns: Turns | None = None
    elapsed_s: float = 0.0
    ended_s: float | None = None
    doubts: tuple[str, ...] = ()
    quality: StepQuality | None = None
    causes: tuple[Cause, ...] = ()
    tool_cpu_pct: float | None = None
    ranks: tuple[RankTrial, ...] = ()
    unavailable: dict[str, str] = {}

    @property
    def ran(self) -> bool:
        """Whether the asked size arrived and an optimizer step was made with it."""
        return self.outcome == "ok" and self.arrived_batch_size == self.batch_size

    @property
    def arrived_share(self) -> float:
        """Samples that reached the training loop over those that were drawn."""
        return 1.0 if self.mean_arrived is None else self.mean_arrived / self.batch_size

    @property
    def contended(self) -> bool:
        """Whether its steps were disturbed so often that clean ones could not be told apart."""
        return self.quality is not None and self.quality.method == "low quantile"

    @property
    def cut_short(self) -> bool:
        """Whether this was a comparison that the end of the script cut short.

        It says nothing about its sizes, each of which ran before.
        """
        return self.kind == "turns" and self.outcome == "script_ended"


def trial_of(
    request: TrialRequest, *, ordinal: int, worker: int, outcome: Outcome, **measured: Any
) -> Trial:
    """What became of a request.

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
