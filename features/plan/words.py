"""The code that puts a plan for many ranks to work."""

from __future__ import annotations

from collections.abc import Sequence

from ...reports.words.split_snippet import BATCHES, CODE, IN_THE_LOOP, WEIGHT
from ...reports.words.wording import clean
from .records import PlanShare

_PARTS = """            for part in range(PARTS[self.rank]):  # micro-batches, nearly equal
                size = (SIZES[self.rank]{by} + part) // PARTS[self.rank]{times}
                yield order[start : start + size]
                start += size"""
_ACCUMULATE = """# DistributedDataParallel divides the sum of the gradients by the number of ranks.
for number, batch in enumerate(loader):
    part = number % PARTS[rank]
    last = part == PARTS[rank] - 1
    size = (SIZES[rank]{by} + part) // PARTS[rank]{times}
    with contextlib.nullcontext() if last else model.no_sync():
        loss = loss_of(model, batch)  # yours
        (loss * (size * len(SIZES) / sum(SIZES))).backward()
    if last:
        optimizer.step()
        optimizer.zero_grad()"""


def snippet_of_shares(shares: Sequence[PlanShare]) -> str:
    """Writes the code for many ranks, some of which may accumulate micro-batches."""
    ranks = "\n".join(f"# {_ranks(share)}: {clean(share.name)}" for share in shares)
    sizes = _repeated([(share.num_gpus, share.batch_size) for share in shares])
    if all(share.micro_batches == 1 for share in shares):
        return CODE.format(
            imports="", sizes=sizes, ranks=ranks, batches=BATCHES, loop=IN_THE_LOOP, weight=WEIGHT
        )
    parts = _repeated([(share.num_gpus, share.micro_batches) for share in shares])
    multiple = shares[0].multiple_of  # one script: the same for all
    whole = {"by": "", "times": ""}
    if multiple > 1:
        whole = {"by": f" // {multiple}", "times": f" * {multiple}"}
    return CODE.format(
        imports="import contextlib\n\n",
        sizes=sizes,
        ranks=f"{ranks}\nPARTS = {parts}  # micro-batches a step of each rank",
        batches=_PARTS.format(**whole),
        loop=IN_THE_LOOP,
        weight=_ACCUMULATE.format(**whole),
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
