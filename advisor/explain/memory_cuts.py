"""What to cut, of a snapshot of the memory: remedies only where its numbers speak for them.

None of them was tried; each says which bytes it concerns, which bounds what it can save.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...records import (
    MemoryCategory,
    MemoryCut,
    MemoryGrowth,
    MemoryPool,
    MemoryShare,
    SnapshotDevice,
)
from ...units import GIB, MIB, format_bytes

SPLIT_SHARE, SPLIT_BYTES = 0.15, 256 * MIB
"""Share of the reserved memory, and bytes, from which on free pieces of used segments need a
remedy."""
IDLE_SHARE = 0.5
"""Free share of the memory reserved for a side stream from which on it is called idle."""
OPTIMIZER_SHARE = 0.25
FORWARD_SHARE = 0.4
"""Shares of the memory in use from which on the optimizer's or the forward pass's part is named."""
SHARE_BYTES = 64 * MIB
"""Smaller parts are not worth a change."""
ROUNDING_SHARE = 0.1
USE_EXPANDABLE = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"


def cuts_of(device: SnapshotDevice) -> tuple[MemoryCut, ...]:
    """What may take less, the surest first."""
    return (*_growth(device), *_fragmentation(device), *_parts(device), *_rounding(device))


def _growth(device: SnapshotDevice) -> Iterable[MemoryCut]:
    for line in device.growth:
        yield MemoryCut(
            rule="growth",
            device=device.device,
            message=f"{growth_text(line)}: something keeps it",
            evidence=f"more after each of {line.num_steps} steps than after the one before "
            f"(steps told by {device.step_source})",
            remedy="keep numbers instead of tensors (loss.item(), .detach()), and empty what the "
            "steps fill, such as lists and caches",
            num_bytes=round(line.bytes_per_step * line.num_steps),
        )


def amount(num_bytes: float) -> str:
    """Bytes in three digits: growth is small beside what is in use.

    >>> amount(1.5 * MIB), amount(600), amount(5000.5)
    ('1.5 MiB', '600 B', '4.88 KiB')
    """
    for size, unit in ((GIB, "GiB"), (MIB, "MiB"), (1024, "KiB")):
        if num_bytes >= size:
            return (
                f"{num_bytes / size:.3g} {unit}"
                if num_bytes < 1000 * size
                else format_bytes(num_bytes)
            )
    return f"{num_bytes:.0f} B"


def growth_text(line: MemoryGrowth) -> str:
    """`train.py:41 (main) grew by 512 KiB a step over 9 steps`."""
    function = f" ({line.function})" if line.function else ""
    where = f"{line.line}{function}" if line.line else "memory without a known line"
    return f"{where} grew by {amount(line.bytes_per_step)} a step over {line.num_steps} steps"


def _fragmentation(device: SnapshotDevice) -> Iterable[MemoryCut]:
    """Free memory that requests cannot have, by its kind."""
    yield from _split_limit(device)
    if not device.expandable:
        yield from _between(device)
        yield from _whole_segments(device)
    yield from _side_streams(device)


def _split_limit(device: SnapshotDevice) -> Iterable[MemoryCut]:
    """`max_split_size_mb` keeps large free blocks of growing segments from smaller requests."""
    cost = device.split_limit
    if cost is None or not _much(cost.blocked_bytes, device):
        return
    if cost.more_bytes <= cost.more_without_bytes:
        return
    yield MemoryCut(
        rule="fragmentation.split_limit",
        device=device.device,
        message=f"{format_bytes(cost.blocked_bytes)} are free in blocks that no request below "
        f"{format_bytes(cost.limit_bytes)} may have: max_split_size_mb and expandable_segments are "
        "set together",
        evidence=f"in a replica of torch's allocator with these blocks, what is in use "
        f"({format_bytes(cost.requested_bytes)}), asked for once more, takes "
        f"{format_bytes(cost.more_bytes)} of new memory; without max_split_size_mb "
        f"{format_bytes(cost.more_without_bytes)}",
        remedy="leave max_split_size_mb out of PYTORCH_CUDA_ALLOC_CONF and keep "
        "expandable_segments:True",
        num_bytes=cost.blocked_bytes,
    )


def _between(device: SnapshotDevice) -> Iterable[MemoryCut]:
    """Live blocks between free pieces."""
    failed = device.out_of_memory
    free = device.inactive_split_bytes
    if failed is not None and failed.fragmentation:
        bound = "" if failed.exact else "at most "
        yield MemoryCut(
            rule="fragmentation",
            device=device.device,
            message="the request failed for fragmentation: enough was free, no piece was large "
            "enough",
            evidence=f"{format_bytes(failed.requested_bytes)} asked for; {bound}"
            f"{format_bytes(failed.free_bytes or 0)} free in its segments, the largest piece "
            f"{bound}{format_bytes(failed.largest_free_bytes or 0)}",
            remedy=f"start with {USE_EXPANDABLE}: segments then grow instead of standing "
            "side by side",
            num_bytes=failed.free_bytes,
        )
    elif _much(free, device):
        share = 100 * free / device.reserved_bytes
        yield MemoryCut(
            rule="fragmentation",
            device=device.device,
            message=f"{format_bytes(free)} are free in pieces of segments that are in use: live "
            "blocks stand between",
            evidence=f"{share:.0f}% of what is reserved; the largest piece has "
            f"{format_bytes(device.largest_free_bytes)}",
            remedy=f"start with {USE_EXPANDABLE}",
            num_bytes=free,
        )


def _whole_segments(device: SnapshotDevice) -> Iterable[MemoryCut]:
    """Segments of one pool that nothing uses: they never merge."""
    for pool in device.pools:
        if pool.num_cached > 1 and _is_main(pool, device) and _much(pool.cached_bytes, device):
            yield MemoryCut(
                rule="fragmentation.segments",
                device=device.device,
                message=f"{format_bytes(pool.cached_bytes)} are free in {pool.num_cached} whole "
                "segments, which never merge",
                evidence=f"{100 * pool.cached_bytes / device.reserved_bytes:.0f}% of what is "
                "reserved; a request that is larger than each of them takes new memory",
                remedy="one torch.cuda.empty_cache() where such requests begin gives them back; "
                f"{USE_EXPANDABLE} keeps it from coming again",
                num_bytes=pool.cached_bytes,
            )


def _side_streams(device: SnapshotDevice) -> Iterable[MemoryCut]:
    """Segments that lie idle on another stream than most: only its requests can have them."""
    streams: dict[int, list[MemoryPool]] = {}
    for pool in device.pools:
        if not _is_main(pool, device) and pool.pool == (0, 0):
            streams.setdefault(pool.stream, []).append(pool)
    for stream, pools in streams.items():
        idle = sum(pool.inactive_bytes for pool in pools)
        reserved = sum(pool.reserved_bytes for pool in pools)
        if idle >= SPLIT_BYTES and idle >= IDLE_SHARE * reserved:
            yield MemoryCut(
                rule="fragmentation.stream",
                device=device.device,
                message=f"{format_bytes(idle)} lie idle on the side stream {stream:#x}, whose "
                "requests alone can have them",
                evidence=f"{100 * idle / reserved:.0f}% of the {format_bytes(reserved)} that are "
                "reserved for it",
                remedy="allocate on the main stream and only work on the side stream "
                "(record_stream), or call torch.cuda.empty_cache() when its work is done",
                num_bytes=idle,
            )


def _is_main(pool: MemoryPool, device: SnapshotDevice) -> bool:
    """Whether the pool is of the stream that most of what is in use belongs to."""
    used: dict[int, int] = {}
    for own in device.pools:
        used[own.stream] = used.get(own.stream, 0) + own.allocated_bytes
    return pool.stream == max(used, key=lambda stream: (used[stream], stream == 0))


def _much(num_bytes: int, device: SnapshotDevice) -> bool:
    return num_bytes >= SPLIT_BYTES and num_bytes >= SPLIT_SHARE * device.reserved_bytes


def _parts(device: SnapshotDevice) -> Iterable[MemoryCut]:
    """Cuts of the optimizer's memory at the end, and of the forward pass's at the peak."""
    held = _bytes_of(device.categories, "optimizer")
    whole = sum(share.num_bytes for share in device.categories)
    if held >= max(SHARE_BYTES, OPTIMIZER_SHARE * whole):
        yield MemoryCut(
            rule="optimizer",
            device=device.device,
            message=f"the optimizer holds {format_bytes(held)}",
            evidence=f"{100 * held / whole:.0f}% of what was in use when the snapshot was made",
            remedy="an optimizer with less state (8-bit Adam, Adafactor, SGD), or its state "
            "sharded over ranks (FSDP, ZeroRedundancyOptimizer)",
            num_bytes=held,
        )
    peak = device.peak
    if peak is None:
        return
    held = _bytes_of(peak.categories, "forward")
    if held >= max(SHARE_BYTES, FORWARD_SHARE * peak.num_bytes):
        yield MemoryCut(
            rule="forward",
            device=device.device,
            message=f"the forward holds {format_bytes(held)} at the peak",
            evidence=f"{100 * held / peak.num_bytes:.0f}% of what was in use then",
            remedy="a smaller batch, activation checkpointing (torch.utils.checkpoint) or bfloat16 "
            "autocast",
            num_bytes=held,
        )


def _bytes_of(shares: Iterable[MemoryShare], category: MemoryCategory) -> int:
    return sum(share.num_bytes for share in shares if share.category == category)


def _rounding(device: SnapshotDevice) -> Iterable[MemoryCut]:
    lost = device.rounding_bytes
    if lost >= max(SHARE_BYTES, ROUNDING_SHARE * device.allocated_bytes):
        yield MemoryCut(
            rule="rounding",
            device=device.device,
            message=f"{format_bytes(lost)} are lost to rounding",
            evidence=f"{100 * lost / device.allocated_bytes:.0f}% of what is allocated, in "
            f"{device.num_blocks} blocks",
            remedy="few large tensors instead of many small ones; without "
            "roundup_power2_divisions, if it is set",
            num_bytes=lost,
        )
