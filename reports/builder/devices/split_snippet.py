"""The code that puts a split plan to work: a batch sampler and the weight of the loss."""

from __future__ import annotations

from collections.abc import Sequence

from ....records import PlanShare, SplitPlan
from ...words.wording import clean

IN_THE_LOOP = "# In the training loop; loss is the mean over this rank's own samples."
"""Comment before the lines that belong into the training loop."""
_CODE = '''{imports}import torch
from torch.utils.data import DataLoader, Sampler

SIZES = {sizes}  # per-rank batch sizes; their sum is the global batch
# Exactly these ranks, in this order:
{ranks}


class SplitSampler(Sampler):
    """Rank i gets SIZES[i] of every sum(SIZES) indices: as many steps on every rank."""

    def __init__(self, num_samples, rank, seed=0):
        self.num_samples, self.rank, self.seed, self.epoch = num_samples, rank, seed, 0

    def set_epoch(self, epoch):  # call it before each epoch, for another order
        self.epoch = epoch

    def __len__(self):
        return self.num_samples // sum(SIZES)  # a shorter last step is left out

    def __iter__(self):
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        order = torch.randperm(self.num_samples, generator=generator).tolist()
        first = sum(SIZES[: self.rank])
        for step in range(len(self)):
            start = step * sum(SIZES) + first
{batches}


sampler = SplitSampler(len(dataset), rank)
loader = DataLoader(dataset, batch_sampler=sampler)

{loop}
{weight}
'''
_BATCHES = "            yield order[start : start + SIZES[self.rank]]"
_WEIGHT = """# DistributedDataParallel divides the sum of the gradients by the number of ranks.
loss = loss * (SIZES[rank] * len(SIZES) / sum(SIZES))"""
_PARTS = """            for part in range(PARTS[self.rank]):  # micro-batches, nearly equal
                size = (SIZES[self.rank] + part) // PARTS[self.rank]
                yield order[start : start + size]
                start += size"""
_ACCUMULATE = """# DistributedDataParallel divides the sum of the gradients by the number of ranks.
for number, batch in enumerate(loader):
    part = number % PARTS[rank]
    last = part == PARTS[rank] - 1
    size = (SIZES[rank] + part) // PARTS[rank]
    with contextlib.nullcontext() if last else model.no_sync():
        loss = loss_of(model, batch)  # yours
        (loss * (size * len(SIZES) / sum(SIZES))).backward()
    if last:
        optimizer.step()
        optimizer.zero_grad()"""


def snippet(plan: SplitPlan) -> str:
    """Python code for a training script; `dataset`, `rank` and `loss` are the script's own."""
    shares = plan.shares
    ranks = "\n".join(f"# rank {rank}: {clean(share.device)}" for rank, share in enumerate(shares))
    sizes = str(tuple(share.batch_size for share in shares))
    return _CODE.format(
        imports="", sizes=sizes, ranks=ranks, batches=_BATCHES, loop=IN_THE_LOOP, weight=_WEIGHT
    )


def snippet_of_shares(shares: Sequence[PlanShare]) -> str:
    """Writes the code for many ranks, some of which may accumulate micro-batches."""
    ranks = "\n".join(f"# {_ranks(share)}: {clean(share.name)}" for share in shares)
    sizes = _repeated([(share.num_gpus, share.batch_size) for share in shares])
    if all(share.micro_batches == 1 for share in shares):
        return _CODE.format(
            imports="", sizes=sizes, ranks=ranks, batches=_BATCHES, loop=IN_THE_LOOP, weight=_WEIGHT
        )
    parts = _repeated([(share.num_gpus, share.micro_batches) for share in shares])
    return _CODE.format(
        imports="import contextlib\n\n",
        sizes=sizes,
        ranks=f"{ranks}\nPARTS = {parts}  # micro-batches a step of each rank",
        batches=_PARTS,
        loop=IN_THE_LOOP,
        weight=_ACCUMULATE,
    )


def _ranks(share: PlanShare) -> str:
    last = share.first_rank + share.num_gpus - 1
    if share.num_gpus == 1:
        return f"rank {last}"
    return f"ranks {share.first_rank} to {last}"


def _repeated(pairs: Sequence[tuple[int, int]]) -> str:
    """A list with as many of each value, in the shortest way.

    >>> _repeated([(2, 96), (1, 8)])
    '[96] * 2 + [8]'
    """
    return " + ".join(
        f"[{value}] * {count}" if count > 1 else f"[{value}]" for count, value in pairs
    )
