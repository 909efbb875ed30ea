"""Findings on several ranks, devices or replicas, one rule for each thing."""

from __future__ import annotations

from collections.abc import Sequence

from ...records import (
    DeviceMemory,
    DeviceShare,
    Evidence,
    Finding,
    Parallelism,
    Scaling,
    Trial,
)
from ...units import format_bytes, format_seconds
from ..measured.measurements import Measurements

BUBBLE_PCT = 30.0
"""Devices that are idle longer than this on average cost more than they bring together."""
UNEVEN_DEVICES = 1.25
"""The fullest device of a spread model uses so much more than the emptiest: layers can move."""
UNEVEN_MEMORY = 0.10
"""Ranks whose peaks differ by more than this share are named."""


def distribution_findings(
    measurements: Measurements, batch_size: int | None, scaling: Scaling | None
) -> list[Finding]:
    """All findings about ranks and shapes of parallelism."""
    distribution = measurements.record.distribution
    if distribution is None:
        return []
    seen = distribution.parallelism or Parallelism()
    findings = [
        *_straggler(scaling),
        *_not_worth_it(measurements, scaling),
        *_uneven_memory(measurements, batch_size),
        *_data_parallel(seen, batch_size),
        *_spread(seen, _trial_at(measurements, batch_size)),
    ]
    if distribution.world_size > 1 and distribution.ranks:
        findings += _alone(distribution.world_size, seen)
        findings += _whole_data(measurements, distribution.world_size)
        findings += _statistics(measurements)
    if seen.comm_hook:
        findings.append(
            Finding(
                rule="distribution.hook",
                severity="info",
                message="a communication hook changes what is sent; the times are with it",
            )
        )
    findings += [
        Finding(rule="distribution.not_measured", severity="info", message=f"not measured: {part}")
        for part in seen.not_measured
    ]
    return findings


def chunks(batch_size: int, num_replicas: int) -> tuple[int, ...]:
    """How `DataParallel` scatters a batch: as `torch.chunk` does, so that devices may stay idle.

    >>> chunks(64, 4), chunks(9, 4), chunks(5, 4)
    ((16, 16, 16, 16), (3, 3, 3), (2, 2, 1))
    """
    size = -(-batch_size // num_replicas)
    full, rest = divmod(batch_size, size)
    return (size,) * full + ((rest,) if rest else ())


# inside --------------------------------------------------------------------------------------


def _straggler(scaling: Scaling | None) -> list[Finding]:
    if scaling is None or scaling.straggler is None:
        return []
    wait = max(scaling.waits_s)
    return [
        Finding(
            rule="distribution.straggler",
            severity="warning",
            message=f"rank {scaling.straggler} computes longest; the others wait for it up to "
            f"{format_seconds(wait)} in every step",
            evidence=(Evidence(metric="wait of a rank a step (s)", value=round(wait, 6)),),
            remedy="give that rank a smaller batch or less other work, or fix its device.",
        )
    ]


def _not_worth_it(measurements: Measurements, scaling: Scaling | None) -> list[Finding]:
    if scaling is None or scaling.verdict == "pays":
        return []
    sure = scaling.verdict == "does not pay"
    words = "does not pay" if sure else "may not pay: the intervals do not tell"
    even, discovery = scaling.break_even_batch, measurements.record.discovery
    units = "samples" if discovery is None else discovery.axis
    return [
        Finding(
            rule="distribution.cost",
            severity="warning" if sure else "info",
            message=f"distribution over {scaling.world_size} ranks {words} "
            f"at {measurements.named(scaling.batch_size)}",
            evidence=(_cost(scaling),),
            remedy=f"by the law it pays from about {even} {units} a rank on (an estimate)."
            if even is not None and even > scaling.batch_size
            else "a larger batch, accumulation under no_sync, or compressed gradients.",
        )
    ]


def _cost(scaling: Scaling) -> Evidence:
    """The two times that the verdict compares."""
    single = scaling.alone_s
    if single is None:
        metric, value, single = "Tsync (s)", scaling.sync_s.median, scaling.compute_s
    else:
        metric = "longer than a step of one alone (s)"
        value = scaling.step_s.median - single.median
    threshold = round((scaling.world_size - 1) * single.median, 6)
    return Evidence(metric=metric, value=round(value, 6), threshold=threshold)


def _uneven_memory(measurements: Measurements, batch_size: int | None) -> list[Finding]:
    ran = reversed(measurements.ran)
    trial = next(
        (candidate for candidate in ran if candidate.batch_size == batch_size and candidate.ranks),
        None,
    )
    if trial is None:
        return []
    peaks = {rank.rank: rank.peak_bytes for rank in trial.ranks if rank.peak_bytes is not None}
    if len(peaks) < 2 or max(peaks.values()) <= (1 + UNEVEN_MEMORY) * min(peaks.values()):
        return []
    fullest = max(peaks, key=lambda rank: peaks[rank])
    return [
        Finding(
            rule="distribution.memory",
            severity="info",
            message=f"rank {fullest} needs the most memory, {format_bytes(peaks[fullest])} "
            f"against {format_bytes(min(peaks.values()))}; it bounds the batch of all",
        )
    ]


def _alone(world_size: int, seen: Parallelism) -> list[Finding]:
    if seen.world_size is not None:
        return []
    return [
        Finding(
            rule="distribution.alone",
            severity="warning",
            message=f"{world_size} ranks run, and the script makes no process group: each trains "
            "a model of its own",
            remedy="call init_process_group and wrap the model, or start one process.",
        )
    ]


def _whole_data(measurements: Measurements, world_size: int) -> list[Finding]:
    discovery = measurements.record.discovery
    loader = discovery.primary if discovery is not None else None
    if loader is None or loader.iterable or loader.num_samples is None:
        return []
    if "Distributed" in loader.sampler or "Shard" in loader.sampler:
        return []
    return [
        Finding(
            rule="distribution.data",
            severity="warning",
            message=f"every rank draws from the whole data set ({loader.sampler}): an epoch is "
            f"read {world_size} times",
            remedy="use DistributedSampler, which gives each rank its part.",
        )
    ]


def _statistics(measurements: Measurements) -> list[Finding]:
    if not measurements.script.has_batch_norm:
        return []
    return [
        Finding(
            rule="distribution.batch_norm",
            severity="info",
            message="BatchNorm takes its statistics from each rank's own batch, not from the "
            "global one",
            remedy="SyncBatchNorm shares them, where the batch of a rank is small.",
        )
    ]


def _data_parallel(seen: Parallelism, batch_size: int | None) -> list[Finding]:
    if not seen.scatters or batch_size is None:
        return []
    num = len(seen.replicas)
    parts = chunks(batch_size, num)
    layout = " + ".join(map(str, parts))
    findings = [
        Finding(
            rule="data_parallel.layout",
            severity="warning",
            message=f"DataParallel cuts each batch of {batch_size} into {layout}"
            + (f"; {num - len(parts)} of {num} GPUs stay idle" if len(parts) < num else ""),
            evidence=(Evidence(metric="GPUs with work", value=float(len(parts)), threshold=num),),
            remedy="use DistributedDataParallel; one process a GPU needs no scatter.",
        )
    ]
    if len(set(parts)) > 1:
        weight = parts[0] / parts[-1]
        findings.append(
            Finding(
                rule="data_parallel.bias",
                severity="info",
                message=f"a loss that is averaged on each GPU and then over the GPUs weighs the "
                f"samples of the last part x{weight:.2f}",
                remedy=f"use a multiple of {num}, or average over the gathered outputs.",
            )
        )
    return findings


def _spread(seen: Parallelism, trial: Trial | None) -> list[Finding]:
    """Each device of a model that lies on several: its memory, and how long it waits."""
    if "spread model" not in seen.shapes:
        return []
    parts = ", ".join(f"{name} {format_bytes(size)}" for name, size in sorted(seen.devices.items()))
    findings = [
        Finding(
            rule="spread.devices",
            severity="info",
            message=f"the model's parameters lie on several devices: {parts}",
        )
    ]
    memory = trial.memory if trial is not None else None
    if memory is not None and memory.devices:
        findings.append(_fullest(memory.devices))
    profile = trial.profile if trial is not None else None
    if profile is not None and profile.devices:
        findings.append(_bubble(profile.devices))
    else:
        findings.append(
            Finding(
                rule="spread.bubble",
                severity="info",
                message="how long each device is idle is not known: no trace of a step with "
                "several GPUs was taken",
            )
        )
    return findings


def _fullest(devices: Sequence[DeviceMemory]) -> Finding:
    used = {
        memory.device: 100 * memory.peak_bytes / max(1, memory.capacity_bytes) for memory in devices
    }
    fullest = max(used, key=lambda name: used[name])
    each = ", ".join(
        f"{memory.device} {format_bytes(memory.peak_bytes)} of "
        f"{format_bytes(memory.capacity_bytes)}"
        for memory in devices
    )
    return Finding(
        rule="spread.memory",
        severity="info",
        message=f"{fullest} has the least room and bounds the batch: {each}",
        evidence=tuple(
            Evidence(metric=f"memory used on {name} (%)", value=round(share, 1))
            for name, share in used.items()
        ),
        remedy="move layers from the fullest device to the others."
        if max(used.values()) > UNEVEN_DEVICES * max(min(used.values()), 0.1)
        else "",
    )


def _bubble(devices: Sequence[DeviceShare]) -> Finding:
    each = ", ".join(f"GPU {share.device} {share.idle_pct:.0f} %" for share in devices)
    mean = sum(share.idle_pct for share in devices) / len(devices)
    return Finding(
        rule="spread.bubble",
        severity="warning" if mean > BUBBLE_PCT else "info",
        message=f"share of the profiled steps in which each device did nothing: {each}; of a "
        "pipeline that is its bubble and all other waiting",
        evidence=tuple(
            Evidence(
                metric=f"idle time of GPU {share.device} (%)",
                value=round(share.idle_pct, 1),
                threshold=BUBBLE_PCT,
            )
            for share in devices
        ),
        remedy="cut each batch into micro-batches that follow one another through the devices "
        "(torch.distributed.pipelining), or use one device where the model fits."
        if mean > BUBBLE_PCT
        else "",
    )


def _trial_at(measurements: Measurements, batch_size: int | None) -> Trial | None:
    """The last trial at a size, one with a profile first."""
    trials = [trial for trial in measurements.ran if trial.batch_size == batch_size]
    return max(trials, key=lambda trial: (trial.profile is not None, trial.ordinal), default=None)
