"""The batches of an epoch as blocks, a row a rank: what is drawn of the tail."""

from __future__ import annotations

from ....records import Tail
from ...report import Block, RankBlocks

SHOWN_BATCHES = 2
"""Full batches drawn at each end of an epoch; those between stand in one block."""
MAX_RANKS = 16
"""Ranks that are drawn; the sentences tell of all."""


def rank_blocks(tail: Tail) -> tuple[RankBlocks, ...]:
    """One row for each rank, every micro-step in the same column."""
    if tail.num_ranks < 2 or len(tail.full) < 2:
        return (RankBlocks(rank=0, blocks=_single(tail)),)
    most = max(tail.batches, default=0)
    ranks = range(min(len(tail.full), MAX_RANKS))
    return tuple(RankBlocks(rank=rank, blocks=_of_rank(tail, rank, most)) for rank in ranks)


def _single(tail: Tail) -> tuple[Block, ...]:
    blocks = _full(tail.batch_size, tail.num_samples // tail.batch_size)
    if tail.last_batch:
        blocks.append(Block(samples=tail.last_batch, kind="short"))
    elif tail.dropped:
        blocks.append(Block(samples=tail.dropped, kind="dropped"))
    return tuple(blocks)


def _of_rank(tail: Tail, rank: int, most: int) -> tuple[Block, ...]:
    full = tail.full[rank]
    own = tail.batches[rank] if rank < len(tail.batches) else most
    last = tail.last[rank] if rank < len(tail.last) else full
    # The last micro-step of the job is the one that the rank with the most batches makes last.
    before = min(own, most - 1)
    blocks = _full(full, before)
    if own < most or last == 0:
        blocks.append(Block(samples=0, kind="empty"))
    else:
        blocks.append(Block(samples=last, kind="full" if last == full else "short"))
    return tuple(blocks)


def _full(size: int, count: int) -> list[Block]:
    block = Block(samples=size, kind="full")
    if count <= 2 * SHOWN_BATCHES + 1:
        return [block] * count
    middle = Block(samples=size, kind="full", count=count - 2 * SHOWN_BATCHES)
    return [*[block] * SHOWN_BATCHES, middle, *[block] * SHOWN_BATCHES]
