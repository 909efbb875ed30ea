"""What to do about a limit. The text goes by what was seen, not only by the limit's name."""

from __future__ import annotations

from typing import NamedTuple

from ...records import Helps, Limit, Profile

SHORT_KERNELS_PCT = 30.0
"""Share of the kernels' time in kernels below 10 us from which on fusing them pays."""
GRAPH_KERNELS = 2.0
"""Kernels per launch from which on CUDA graphs are in use."""
FEW_WORKERS = 4
"""Data workers that are suggested where there are at least as many cores."""


class Workers(NamedTuple):
    """The data workers of a loader, and the host's cores that they may run on.

    Attributes:
        number: of the DataLoader; `None` where it is not known, as the cores.
        beside_training: they share the cores with a CPU that trains.
    """

    number: int | None = None
    num_cores: int | None = None
    beside_training: bool = False


UNKNOWN_WORKERS = Workers()


def remedy_of(
    limit: Limit, profile: Profile | None = None, workers: Workers = UNKNOWN_WORKERS
) -> str:
    """What to do, in one line.

    Args:
        limit: what limits the step.
        profile: what the trace showed.
        workers: that load meanwhile.
    """
    if limit == "input":
        return _input(workers)
    if limit == "host":
        return _host(profile)
    if limit == "copies" and _direction(profile) in _COPIES:
        return _COPIES[_direction(profile)]
    if profile is not None and profile.trains is False:
        return _INFERENCE.get(limit, _FIXED[limit])
    return _FIXED[limit]


_FIXED: dict[Limit, str] = {
    "input": "",
    "host": "",
    "synchronisation": "fewer .item(), .cpu(), print(loss) and nonzero() calls in the step, log "
    "every N steps; pin_memory=True with .to(device, non_blocking=True).",
    "communication": "larger or better overlapped buckets (bucket_cap_mb, gradient_as_bucket_view),"
    " gradient accumulation with no_sync(), communication in a lower precision; a larger batch "
    "per GPU spreads the same gradients over more samples.",
    "copies": "pin_memory=True with .to(device, non_blocking=True), smaller types on the way "
    "(uint8 images), data that stays on the GPU; a larger batch copies in proportion.",
    "small kernels": "a larger batch, torch.compile, or fused kernels.",
    "memory": "gradient checkpointing, lower precision, or accumulation to make room for a larger "
    "batch; until then torch.compile or CUDA graphs lower the cost per step.",
    "saturated": "a faster step needs less work per sample: lower precision, torch.compile, "
    "a smaller model; not a larger batch.",
    "cannot tell": "measure longer (--budget), on a quieter machine.",
}

USE_DDP = (
    "DistributedDataParallel, one process a GPU: DataParallel copies all parameters to each GPU "
    "and sums the gradients on one, at every step; a larger batch per GPU shares that out."
)
"""Where DataParallel communicates: it has no buckets."""

_INFERENCE: dict[Limit, str] = {
    "synchronisation": "fewer .item(), .cpu() and nonzero() calls between the launches; "
    "pin_memory=True with .to(device, non_blocking=True).",
    "communication": "fewer devices for one model where it fits, fused all-reduce kernels, "
    "communication in a lower precision; a larger batch shares out what each collective costs "
    "whatever its size is.",
}
"""Where nothing is trained: no loss to print, no gradients to bucket."""

_COPIES: dict[str, str] = {
    "DtoH": "keep results on the GPU and copy them less often: sum or stack them there and fetch "
    "them once in many steps; what must come goes into pinned memory with non_blocking=True; a "
    "larger batch copies in proportion.",
    "DtoD": "fewer copies inside the GPU: .clone(), .contiguous(), torch.cat, changes of type or "
    "layout; a larger batch copies in proportion.",
    "PtoP": "fewer copies from GPU to GPU: a process for each (DistributedDataParallel), or "
    "cuts of the model where little passes; a larger batch copies in proportion.",
}
"""Remedies by the direction of copies that takes the most time; the general one is for copies from
the host."""

UNTIMED = "time a larger batch; if it gains nothing, lower precision or torch.compile."
"""Remedy for a device that computes all the time, where nothing says what a larger batch gains."""

LESS_MEMORY = (
    "Lower precision, gradient checkpointing, an optimizer with less state, smaller or shorter "
    "samples, a smaller model, or its weights over several GPUs (FSDP) need less memory"
)


def nothing_fits(*, limited: bool) -> str:
    """What to do where not even a batch of 1 fits.

    Args:
        limited: the limit is the user's own, and not the device's.
    """
    return f"{LESS_MEMORY}; --memory-limit may be raised." if limited else f"{LESS_MEMORY}."


LOADING: dict[Helps, str] = {
    "does not help": "a larger batch does not help, its loading takes longer in proportion.",
    "helps": "a larger batch helps as well: by the timed sizes its wait does not grow in "
    "proportion.",
    "unknown": "the timed sizes do not show whether a larger batch helps.",
}
"""How the remedy for a slow loader ends."""


def _input(workers: Workers) -> str:
    """No more workers than cores; beside a CPU that trains one fewer, and no memory to pin."""
    cheaper, number = "cheaper or cached preprocessing", workers.number or 0
    if workers.num_cores is None:
        few = workers.number == 0
        more = "workers (num_workers=4 or more)" if few else "more workers (num_workers)"
        return f"{more}, pin_memory=True, persistent_workers=True, {cheaper}"
    cores = f"{workers.num_cores} cores" if workers.num_cores > 1 else "1 core"
    if workers.beside_training:
        spare = min(FEW_WORKERS, workers.num_cores - 1)
        if spare <= number:
            return f"{cheaper}: training and loading share {cores}, so that more workers add little"
        return f"num_workers={spare} ({cores}), persistent_workers=True, {cheaper}"
    if workers.num_cores <= number:
        return f"{cheaper}: the host has {cores}, so that more workers add little"
    wanted = f"num_workers={min(FEW_WORKERS, workers.num_cores)}"
    if number >= FEW_WORKERS:
        wanted = "more workers (num_workers)"
    return f"{wanted} ({cores}), pin_memory=True, persistent_workers=True, {cheaper}"


def _direction(profile: Profile | None) -> str:
    """In which direction copies take the most time; empty where that is not known."""
    copies = () if profile is None else profile.copies
    return max(copies, key=lambda own: own.total_s).direction if copies else ""


def _host(profile: Profile | None) -> str:
    """A larger batch, and what makes the host's part of a step cheaper."""
    graphs = profile is not None and (profile.kernels_per_launch or 0.0) >= GRAPH_KERNELS
    short = profile is not None and (profile.short_kernel_pct or 0.0) >= SHORT_KERNELS_PCT
    trains = profile is None or profile.trains is not False
    parts = ["a larger batch where the training allows it" if trains else "a larger batch"]
    if graphs:
        parts.append("more of the step inside CUDA graphs")
    else:
        parts.append('torch.compile(mode="reduce-overhead") or CUDA graphs')
    parts.append("fewer small operators" + (" (most kernels are short)" if short else ""))
    if trains:
        parts.append("a fused or foreach optimizer")
    return ", ".join(parts) + "."
