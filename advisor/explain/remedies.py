"""What to do about a limit. The text goes by what was seen, not only by the limit's name."""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from ...records import Goal, Helps, Limit, Profile

SHORT_KERNELS_PCT = 30.0
"""Share of the kernels' time in kernels below 10 us from which on fusing them pays."""
GRAPH_KERNELS = 2.0
"""Kernels per launch from which on CUDA graphs are in use."""
FEW_WORKERS = 4
"""Data workers that are suggested where there are at least as many cores."""

REPEATED = (
    " (several only where the data set shares out its stream by torch.utils.data.get_worker_info():"
    " else each worker gives all of it)"
)
"""What to know of the workers of a stream before there are more."""

LEAST_REST = 0.01
"""Share of a step that is taken to do something else than wait for its loader."""


class Workers(NamedTuple):
    """The data workers of a loader, and the host's cores that they may run on.

    Attributes:
        number: of the DataLoader; `None` where it is not known, as the cores.
        beside_training: they share the cores with a CPU that trains.
        wait: share of the step that waits for them, 0..1; `None` where it is not known.
        stream: they read an iterable data set.
    """

    number: int | None = None
    num_cores: int | None = None
    beside_training: bool = False
    wait: float | None = None
    stream: bool = False

    @property
    def enough(self) -> int | None:
        """Workers that load as fast as the rest of a step takes; `None` where that is not known.

        A worker takes for a batch as long as the steps in which the others load theirs, the
        training process as long as the step waits. What does not wait is the rest of the step.

        >>> Workers(0, wait=0.6).enough, Workers(2, wait=0.6).enough, Workers(0).enough
        (2, 5, None)
        """
        if self.number is None or self.wait is None:
            return None
        loading, rest = self.number or self.wait, max(1 - self.wait, LEAST_REST)
        return ceil(round(loading / rest, 3))


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
        return _host(profile, on_cpu=workers.beside_training)
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
    "memory": "gradient checkpointing or lower precision make room for a larger batch; until then "
    "torch.compile or CUDA graphs lower the cost per step.",
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
UNSURE = (
    "lower precision or torch.compile; the times of the sizes beside it differ too much to say "
    "what a larger batch gains."
)
"""Remedy for such a device where other sizes were timed already."""
ONLY_HELD_UP = (
    "lower precision or torch.compile; other programs held up the sizes beside it, so that nothing "
    "says what a larger batch gains."
)
"""Remedy for such a device where other sizes were timed, and only beside other programs."""

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


def no_size_fits(goal: Goal, smallest: int, *, limited: bool) -> str:
    """What to do where no size fits that was tried: options that stand beside those of the goal.

    Args:
        smallest: of the sizes.
        limited: as in `nothing_fits`.
    """
    if smallest == 1:
        return nothing_fits(limited=limited)
    if goal.sizes:
        return "Name smaller ones with --sizes."
    if smallest > goal.multiple_of:
        return f"Start with smaller sizes: --start {goal.multiple_of}."
    return "A smaller --multiple-of lets smaller sizes be tried."


LOADING: dict[Helps, str] = {
    "does not help": "a larger batch does not help, its loading takes longer in proportion.",
    "helps": "a larger batch helps as well: by the timed sizes its wait does not grow in "
    "proportion.",
    "unknown": "the timed sizes do not show whether a larger batch helps.",
}
"""How the remedy for a slow loader ends."""


def _input(workers: Workers) -> str:
    """No more workers than cores; beside a CPU that trains one fewer, and no memory to pin.

    Where these do not load as fast as the step would run, the samples have to become cheaper too.
    """
    cheaper, number, enough = "cheaper or cached preprocessing", workers.number or 0, workers.enough
    repeated = REPEATED if workers.stream else ""
    if workers.num_cores is None:
        few = workers.number == 0
        more = f"workers (num_workers={max(FEW_WORKERS, enough or 0)} or more)"
        more = more if few else "more workers (num_workers)"
        return f"{more}, pin_memory=True, persistent_workers=True, {cheaper}{repeated}"
    cores = f"{workers.num_cores} cores" if workers.num_cores > 1 else "1 core"
    spare, pinned = workers.num_cores, "pin_memory=True, "
    why = f"the host has {cores}"
    if workers.beside_training:
        spare, pinned = workers.num_cores - 1, ""
        why = f"training and loading share {cores}"
    if spare <= number:
        return f"{cheaper}: {why}, so that more workers add little"
    wanted = min(spare, max(enough or 0, FEW_WORKERS))
    more, repeated = f"num_workers={wanted}", repeated if wanted > 1 else ""
    if enough is None and number >= FEW_WORKERS:
        more = "more workers (num_workers)"
    more += f" ({cores}), {pinned}persistent_workers=True"
    if enough is not None and enough > spare:
        return f"{more}, and {cheaper}: such workers alone do not keep up{repeated}"
    return f"{more}, or {cheaper}{repeated}"


def _direction(profile: Profile | None) -> str:
    """In which direction copies take the most time; empty where that is not known."""
    copies = () if profile is None else profile.copies
    return max(copies, key=lambda own: own.total_s).direction if copies else ""


def _host(profile: Profile | None, *, on_cpu: bool) -> str:
    """A larger batch, and what makes the host's part of a step cheaper.

    Args:
        on_cpu: the CPU trains itself, and has no graphs of kernels.
    """
    graphs = profile is not None and (profile.kernels_per_launch or 0.0) >= GRAPH_KERNELS
    short = profile is not None and (profile.short_kernel_pct or 0.0) >= SHORT_KERNELS_PCT
    trains = profile is None or profile.trains is not False
    parts = ["a larger batch where the training allows it" if trains else "a larger batch"]
    if on_cpu:
        parts.append("torch.compile")
    elif graphs:
        parts.append("more of the step inside CUDA graphs")
    else:
        parts.append('torch.compile(mode="reduce-overhead") or CUDA graphs')
    parts.append("fewer small operators" + (" (most kernels are short)" if short else ""))
    if trains:
        parts.append("a fused or foreach optimizer")
    return ", ".join(parts) + "."
