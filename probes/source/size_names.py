"""Names of batch sizes, and how exactly each means the size that is trained on. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

SIZE_NAMES = tuple(
    re.compile(pattern)
    for pattern in (
        r"(per_device_|per_gpu_|micro_|device_|local_|mini_?)(train_|training_)?(batch_?size|bsz?)",
        r"(train_|training_)?((batch_?size)_per_(gpu|device)|micro_?batch|mini_?batch)",
        r"(train_|training_)(batch_?size|bsz?)|batch_?size_train(ing)?",
        r"batch_?size|n_?batch",
        r"bs|bsz|batch",
        r"b",
    )
)
"""Names of a batch size, the most exact ones first."""
_NOT_AN_OPTION = len(SIZE_NAMES) - 1
"""The rank of a name that means a batch size where it is given a number in the text alone."""
_NOT_TRAINING = re.compile(
    r"(^|[_.-])(eval|val|valid|validation|test|infer|inference|dev)([_.-]|$)"
)


def rank_of(name: str) -> int | None:
    """How exactly a name means the size of a batch that is trained on; `None` if it does not."""
    plain = name.lstrip("-").lower().replace("-", "_")
    if _NOT_TRAINING.search(plain):
        return None
    last = plain.rpartition(".")[2]
    return next((rank for rank, names in enumerate(SIZE_NAMES) if names.fullmatch(last)), None)


def option_rank(flag: str) -> int | None:
    rank = rank_of(flag)
    return None if rank == _NOT_AN_OPTION else rank


def best_rank(flags: Sequence[str]) -> int | None:
    return min((rank for rank in map(option_rank, flags) if rank is not None), default=None)
