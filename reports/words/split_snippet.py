"""The code that puts a split plan to work: a batch sampler and the weight of the loss."""

from __future__ import annotations

from ...records import SplitPlan
from .wording import clean

IN_THE_LOOP = "# In the training loop; loss is the mean over this rank's own samples."
"""Comment before the lines that belong into the training loop."""
CODE = '''{imports}import torch
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
BATCHES = "            yield order[start : start + SIZES[self.rank]]"
WEIGHT = """# DistributedDataParallel divides the sum of the gradients by the number of ranks.
loss = loss * (SIZES[rank] * len(SIZES) / sum(SIZES))"""


def snippet(plan: SplitPlan) -> str:
    """Python code for a training script; `dataset`, `rank` and `loss` are the script's own."""
    shares = plan.shares
    ranks = "\n".join(f"# rank {rank}: {clean(share.device)}" for rank, share in enumerate(shares))
    sizes = str(tuple(share.batch_size for share in shares))
    return CODE.format(
        imports="", sizes=sizes, ranks=ranks, batches=BATCHES, loop=IN_THE_LOOP, weight=WEIGHT
    )
