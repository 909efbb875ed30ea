"""What counters and allocators of the GPU and the host say beside the times."""

from __future__ import annotations

from ...records import GPU_SETTINGS, Evidence, Finding, Memory, Trial
from ...units import format_bytes, format_variables
from ..measured.graph_pools import others_bytes
from ..measured.measurements import Measurements
from ..measured.page_faults import KEEPS_MEMORY, share_of_faults
from .ratios import rate_name

SCATTERED_SHARE = 0.10
"""Reserved memory above what was ever used in it, as a share of the capacity, that is named."""
STARTS_SHARE = 0.20
"""A start of workers that takes a smaller part of an epoch's steps is not named."""
FAULTS_SHARE = 0.05
"""Page faults that take a smaller part of a step are not named; the intervals of quiet steps are
about as wide."""
KEEPING = (f"export {format_variables(KEEPS_MEMORY)}",)
"""As a shell takes them."""
HAS_EXPANDABLE = "expandable segments"
"""Stands in a memory's source where the allocator has them already."""
_ALLOW_CUPTI = (
    "allow CUPTI: as administrator load the module nvidia with "
    "NVreg_RestrictProfilingToAdminUsers=0, or run as root; a container needs --cap-add=SYS_ADMIN "
    "as well; under WSL2 the NVIDIA control panel of Windows allows it (manage GPU performance "
    "counters)."
)
_LOOK_FOR_CUPTI = (
    "look for CUPTI in the run's log, and whether batchadvisor doctor sees kernels; another "
    "profiler (Nsight, DCGM) may hold it."
)
_REMEDY = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"


def settings(measurements: Measurements) -> list[Finding]:
    """How the GPU was run while it was timed: no doubt, and good to know."""
    named = [
        name
        for trial in measurements.record.trials
        if trial.counters
        for name in trial.counters.throttle_reasons
    ]
    seen = [name for name in GPU_SETTINGS if name in named]
    if not seen:
        return []
    return [
        Finding(
            rule="gpu.settings",
            severity="info",
            message="the GPU ran below its highest clock under "
            + " and under ".join(GPU_SETTINGS[name] for name in seen)
            + ": that is how it is set up, and the sizes were timed so",
            evidence=tuple(
                Evidence(metric=f"windows with {name}", value=named.count(name)) for name in seen
            ),
        )
    ]


def shared_core(measurements: Measurements) -> list[Finding]:
    """Data workers that may run on fewer cores than the script began with."""
    discovery = measurements.record.discovery
    cores = discovery.cores if discovery is not None else None
    if cores is None or cores.in_workers >= min(cores.num_workers, cores.at_start):
        return []
    by = f" ({', '.join(cores.variables)})" if cores.variables else ""
    on = "1 core" if cores.in_workers == 1 else f"{cores.in_workers} cores"
    return [
        Finding(
            rule="workers.share_cores",
            severity="warning",
            message=f"{cores.num_workers} data workers share {on} of the {cores.at_start} that the "
            f"script began with: its mask of cores shrank while it imported{by}, and workers "
            "inherit it",
            evidence=(
                Evidence(
                    metric="cores of all data workers",
                    value=cores.in_workers,
                    threshold=min(cores.num_workers, cores.at_start),
                ),
            ),
            remedy="give the workers all cores back"
            + (", or start without these variables:" if cores.variables else ":"),
            code=(
                "def on_all_cores(worker):",
                "    os.sched_setaffinity(0, range(os.cpu_count()))",
                "DataLoader(..., worker_init_fn=on_all_cores)",
            ),
        )
    ]


def workers_start(measurements: Measurements, batch_size: int) -> list[Finding]:
    """Data workers that every epoch starts anew, for a large part of its time."""
    discovery = measurements.record.discovery
    loader = discovery.primary if discovery is not None and discovery.loaders else None
    trial, num_samples = measurements.best_timed.get(batch_size), measurements.epoch_samples
    if loader is None or not loader.num_workers or loader.persistent_workers:
        return []
    if loader.start_s is None or not num_samples or trial is None or trial.samples_per_s is None:
        return []
    share = trial.arrived_share if loader.axis == "samples" else 1.0  # of a budget it is no share
    steps_s = num_samples * share / trial.samples_per_s.median
    if loader.start_s < STARTS_SHARE * steps_s:
        return []
    workers = "its worker" if loader.num_workers == 1 else f"its {loader.num_workers} workers"
    return [
        Finding(
            rule="workers.start",
            severity="warning",
            message=f"each epoch starts {workers} anew: the first batch came after "
            f"{loader.start_s:.2g} s (measured once), and the steps of an epoch at "
            f"{measurements.named(batch_size)} take {steps_s:.2g} s. Samples per second are "
            "those of steps: an epoch has fewer",
            evidence=(
                Evidence(
                    metric="from the iterator to its first batch, s",
                    value=round(loader.start_s, 3),
                    threshold=round(STARTS_SHARE * steps_s, 3),
                ),
            ),
            remedy="one DataLoader for all epochs, with persistent_workers=True, keeps them.",
        )
    ]


def page_faults(measurements: Measurements, batch_size: int) -> list[Finding]:
    """Steps on a CPU that give their memory back to the system and get it anew, page by page.

    Named for the recommended size; where its steps do not, for the size that does so most.
    """
    named = max(
        (trial for trial in measurements.timed if share_of_faults(trial) >= FAULTS_SHARE),
        key=lambda trial: (trial.batch_size == batch_size, share_of_faults(trial)),
        default=None,
    )
    faults = None if named is None or named.quality is None else named.quality.page_faults
    if named is None or faults is None:
        return []
    share = share_of_faults(named)
    by_default = faults.allocator == "glibc"
    return [
        Finding(
            rule="memory.page_faults",
            severity="warning",
            message=f"a step at {measurements.named(named.batch_size)} spends {share:.0%} of its "
            f"time or more on {faults.num:,.0f} page faults: memory that one step frees goes back "
            "to the system, and the next step gets it anew. How much does so depends on what the "
            "process did before: times of one size differ between processes, and turns in one "
            "process favour the smaller size",
            evidence=(
                Evidence(
                    metric="share of a step in page faults, at least",
                    value=round(share, 3),
                    threshold=FAULTS_SHARE,
                ),
            ),
            remedy="start the script with these variables, in training too: its process then keeps "
            "the memory. Run again with them, since sizes then compare otherwise:"
            if by_default
            else "",
            code=KEEPING if by_default else (),
        )
    ]


def retries(measurements: Measurements, batch_size: int) -> list[Finding]:
    """The allocator had to give memory back to the driver, which stops the GPU."""
    num = max(
        (memory.num_alloc_retries or 0 for memory in _memories(measurements, batch_size)), default=0
    )
    if not num:
        return []
    return [
        Finding(
            rule="memory.retries",
            severity="warning",
            message=f"the allocator flushed its cache {_times(num)} at this size: memory is "
            "too tight for full speed, and after a batch of another size this one may be refused",
            evidence=(Evidence(metric="allocation retries", value=num, threshold=0),),
            remedy="a smaller size" + ("." if _expandable(measurements) else f", or {_REMEDY}."),
        )
    ]


def retries_above(measurements: Measurements, batch_size: int) -> list[Finding]:
    """Larger sizes that are slower because the allocator gave memory back to the driver."""
    here = measurements.best_timed.get(batch_size)
    if here is None or here.samples_per_s is None or _retries(here):
        return []
    findings = []
    unit = measurements.tokens_a_sample or 1.0
    fast = here.samples_per_s.median * unit
    for size, trial in measurements.best_timed.items():
        num, rate = _retries(trial), trial.samples_per_s
        if size <= batch_size or not num or rate is None or trial.step_s is None:
            continue
        if rate.high >= here.samples_per_s.low:
            continue
        in_each = num >= trial.step_s.num_samples
        findings.append(
            Finding(
                rule="memory.retries_above",
                severity="info",
                message=f"batch {size} is slower than batch {batch_size} "
                f"({_rate(rate.median * unit)} against {_rate(fast)} {rate_name(measurements)}), "
                f"and the allocator flushed its cache {_times(num)} there to find memory, which "
                f"stops the GPU{': that is why' if in_each else '; it may be why'}",
                evidence=(Evidence(metric="allocation retries", value=num, threshold=0),),
                remedy="stay below that size"
                + ("." if _expandable(measurements) else f", or {_REMEDY}."),
            )
        )
    return findings


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _retries(trial: Trial) -> int:
    return (trial.memory.num_alloc_retries or 0) if trial.memory is not None else 0


def scattered(measurements: Measurements, batch_size: int) -> list[Finding]:
    """Much is reserved and never used: it lies in pieces that no request fits."""
    device = measurements.record.device
    capacity = device.capacity_bytes if device is not None else 0
    gaps = [
        (
            held.reserved_bytes - held.allocated_bytes - (held.graph_pools_bytes or 0),
            held.reserved_bytes,
            held.allocated_bytes,
        )
        for held in _memories(measurements, batch_size)
        if held.reserved_bytes is not None and held.allocated_bytes is not None
    ]
    gap, reserved, used = min(gaps, default=(0, 0, 0))
    if not capacity or gap < SCATTERED_SHARE * capacity:
        return []
    known = _expandable(measurements)
    return [
        Finding(
            rule="memory.scattered",
            severity="info",
            message=f"torch reserves {format_bytes(reserved)} at {measurements.named(batch_size)} "
            f"and never uses more than {format_bytes(used)} of it at once: {format_bytes(gap)} "
            "lies between",
            evidence=(
                Evidence(
                    metric="reserved and not used, share of the capacity",
                    value=round(gap / capacity, 3),
                    threshold=SCATTERED_SHARE,
                ),
            ),
            remedy="" if known else f"try {_REMEDY}: pieces then join, and a larger size may fit.",
        )
    ]


def graph_pools(measurements: Measurements, batch_size: int) -> list[Finding]:
    """A peak that holds the graphs of other sizes as well."""
    memory = measurements.trusted_memory.get(batch_size)
    others = [
        others_bytes(measurements.record.trials, trial, measurements.own_size)
        for trial in measurements.ran
        if trial.batch_size == batch_size and trial.memory is memory
    ]
    if memory is None or not any(others):
        return []
    return [
        Finding(
            rule="memory.graph_pools",
            severity="info",
            message=f"{format_bytes(max(others))} of the peak of {format_bytes(memory.peak_bytes)} "
            f"at {measurements.named(batch_size)} lie in private pools, as captured "
            "CUDA graphs have them, of what ran before in the same process: trained at this size "
            "alone, the script takes less",
            evidence=(
                Evidence(
                    metric="share of the peak in other sizes' graphs",
                    value=round(max(others) / memory.peak_bytes, 3),
                ),
            ),
        )
    ]


def unseen(measurements: Measurements) -> list[Finding]:
    """The profiler saw nothing of the GPU: why, and what allows it."""
    record = measurements.record
    if record.device is None or record.device.kind != "cuda":
        return []
    blind = [
        trial.profile
        for trial in record.trials
        if trial.profile is not None and trial.profile.trace and trial.profile.busy_pct is None
    ]
    if not blind:
        return []
    reason = blind[-1].unavailable.get("busy_pct", "it does not say why")
    refused = "INSUFFICIENT_PRIVILEGES" in reason
    return [
        Finding(
            rule="profile.no_gpu",
            severity="warning",
            message=f"the profiler saw nothing of the GPU ({reason}): only "
            "times show what limits the step",
            evidence=(Evidence(metric="windows without the GPU", value=len(blind)),),
            remedy=_ALLOW_CUPTI if refused else _LOOK_FOR_CUPTI,
        )
    ]


def _expandable(measurements: Measurements) -> bool:
    return any(
        HAS_EXPANDABLE in trial.memory.peak_source for trial in measurements.ran if trial.memory
    )


def _memories(measurements: Measurements, batch_size: int) -> list[Memory]:
    return [
        trial.memory
        for trial in measurements.ran
        if trial.batch_size == batch_size and trial.memory is not None
    ]
