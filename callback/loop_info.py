"""The parts of a loop, as far as its objects tell: loader, optimizers, model, ranks."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

from .. import __version__
from ..probes.distributed.ranks import (
    MPIRUN,
    SELF_STARTED,
    SRUN,
    TORCHRUN,
    detect_rank,
    slurm_rank,
)
from ..probes.doors.optimizers import optimizer_info
from ..records import LoaderInfo, NormLayers, OptimizerInfo, Pipeline, SourceLine, Versions
from .token_count import TokenCount

STEERED = "no: a callback only watches"


@dataclass(slots=True)
class Facts:
    """The facts that an adapter knows about its loop; filled in as they become known.

    Attributes:
        framework: of the loop, `plain` for the user's own.
        loader: the training loader.
        micro_batches: per optimizer step, as configured; what is seen goes before it.
        device: of the parameters, as `str(torch.device)`; `None` while it is not known.
        pipeline: how samples become batches, over all ranks, for the rules on the epoch's end.
        reasons: why something is not known, by the field of the discovery.
        tokens: what the batches hold, where they are sequences.
    """

    framework: str
    version: str | None = None
    loader: LoaderInfo | None = None
    micro_batches: int | None = None
    optimizers: tuple[OptimizerInfo, ...] = ()
    num_parameters: int | None = None
    norm_layers: NormLayers | None = None
    device: str | None = None
    rank: int = 0
    world_size: int = 1
    pipeline: Pipeline | None = None
    reasons: dict[str, str] = field(default_factory=dict)
    tokens: TokenCount = field(default_factory=TokenCount)

    @property
    def local_world_size(self) -> int:
        """Ranks on this host; all of them where the launcher does not tell."""
        told = os.environ.get("LOCAL_WORLD_SIZE", "")
        return min(int(told), self.world_size) if told.isdecimal() else self.world_size

    def add_optimizer(self, optimizer: Any) -> None:
        """An optimizer that trains, and the device of its parameters."""
        optimizer = innermost(optimizer)
        first = next(
            (parameter for group in optimizer.param_groups for parameter in group["params"]), None
        )
        self.optimizers = (*self.optimizers, optimizer_info(optimizer, len(self.optimizers)))
        counts = [
            known.num_parameters for known in self.optimizers if known.num_parameters is not None
        ]
        # A sum that leaves out one whose number nobody knows would be too low.
        self.num_parameters = sum(counts) if len(counts) == len(self.optimizers) else None
        if first is not None and self.device is None:
            self.device = str(first.device)

    def add_model(self, model: Any) -> None:
        """A torch module: its device and its normalisation layers."""
        from ..probes.loader.norms import count_norms

        self.norm_layers = count_norms(model.modules())
        first = next(iter(model.parameters()), None)
        if first is not None:  # an optimizer may keep its own copies of them on the CPU
            self.device = str(first.device)


def innermost(optimizer: Any) -> Any:
    """The optimizer of torch inside of what Accelerate, Lightning and DeepSpeed put around it."""
    while (inner := getattr(optimizer, "optimizer", None)) is not None:
        optimizer = inner
    return optimizer


def loader_info(loader: Any, place: SourceLine | None = None) -> LoaderInfo | None:
    """The record of a torch DataLoader; `None` for anything else.

    Samples are those that this rank draws, as its sampler counts them.
    """
    from torch.utils.data import DataLoader, IterableDataset

    from ..probes.loader import loader_facts

    if not isinstance(loader, DataLoader):
        return None
    sampler = loader.batch_sampler
    return LoaderInfo(
        ordinal=0,
        place=place,
        batch_size=loader.batch_size or loader_facts.attribute_size(sampler),
        num_samples=loader_facts.samples_of(loader),
        drop_last=loader_facts.drops_last(loader),
        num_workers=loader.num_workers,
        sampler=loader_facts.sampler_name(loader),
        iterable=isinstance(loader.dataset, IterableDataset),
        steered=STEERED,
        trains=True,
    )


def unknown_loader(
    batch_size: int | None, num_samples: int | None = None, sampler: str = "?"
) -> LoaderInfo:
    """The record of a loader that is none of torch's."""
    return LoaderInfo(
        ordinal=0,
        place=None,
        batch_size=batch_size,
        num_samples=num_samples,
        drop_last=False,
        num_workers=0,
        sampler=sampler,
        iterable=False,
        steered=STEERED,
        trains=True,
    )


def rank_and_world(environment: Mapping[str, str] | None = None) -> tuple[int, int]:
    """This process among those of its job, without a word to the others.

    An initialised process group goes first, then the variables of launchers; a job of one task is
    no job.
    """
    distributed = sys.modules.get("torch.distributed")
    if (
        environment is None
        and distributed is not None
        and distributed.is_available()
        and distributed.is_initialized()
    ):
        return int(distributed.get_rank()), int(distributed.get_world_size())
    detected = detect_rank(os.environ if environment is None else environment, several=True)
    return (0, 1) if detected is None else (detected.rank, detected.world_size)


def launcher() -> str:
    """Who started the ranks, by what it left in the environment."""
    for variable, name in (
        ("TORCHELASTIC_RUN_ID", TORCHRUN),
        ("OMPI_COMM_WORLD_RANK", MPIRUN),
        ("PMI_RANK", MPIRUN),
    ):
        if variable in os.environ:
            return name
    # A batch script that no srun started has a SLURM_PROCID too.
    return SELF_STARTED if slurm_rank(os.environ) is None else SRUN


def versions() -> Versions:
    """Versions of what runs here. torch is asked only if the training imported it."""
    torch = sys.modules.get("torch")
    return Versions(
        batchadvisor=__version__,
        python=platform.python_version(),
        torch=version_of("torch") or "?",
        cuda=getattr(getattr(torch, "version", None), "cuda", None),
        platform=platform.platform(),
    )


def version_of(distribution: str) -> str | None:
    """The installed version of a distribution; nothing is imported."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
