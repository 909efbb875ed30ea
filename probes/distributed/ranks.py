"""Which rank of which job this process is, from the variables that launchers set. No torch here."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

TORCHRUN, MPIRUN, SRUN = "torchrun", "mpirun", "srun"
SELF_STARTED = "the script itself"
"""Who started the ranks, as the record names them."""


class Rank(msgspec.Struct, frozen=True, kw_only=True):
    """This process in its job.

    Attributes:
        launcher: who set the variables.
        job: tells jobs on one host apart; empty where the launcher has an address to meet at.
    """

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    launcher: str
    job: str = ""

    @property
    def one_host(self) -> bool:
        """Whether all ranks are on this host."""
        return self.local_world_size == self.world_size


def detect_rank(environment: Mapping[str, str], *, several: bool = False) -> Rank | None:
    """The rank that a launcher gave this process, `None` for an ordinary one.

    In this order: RANK (torchrun and whoever sets the same), OMPI_* (Open MPI), PMI_* (MPICH,
    Intel MPI), SLURM_* inside a step of several tasks.

    Args:
        several: a job of one rank is none.
    """
    for read in (_torchrun, _open_mpi, _pmi, slurm_rank):
        rank = read(environment)
        if rank is None or not 0 <= rank.rank < rank.world_size:
            continue
        if rank.world_size > 1 or not several:
            return rank
    return None


def _torchrun(environment: Mapping[str, str]) -> Rank | None:
    rank, world = _number(environment, "RANK"), _number(environment, "WORLD_SIZE")
    if rank is None or world is None:
        return None
    agent = "TORCHELASTIC_RUN_ID" in environment
    return Rank(
        rank=rank,
        world_size=world,
        local_rank=_number(environment, "LOCAL_RANK") or 0,
        local_world_size=_number(environment, "LOCAL_WORLD_SIZE") or world,
        launcher=TORCHRUN if agent else "RANK and WORLD_SIZE",
        job=_mpi_job(environment),
    )


def _open_mpi(environment: Mapping[str, str]) -> Rank | None:
    rank = _number(environment, "OMPI_COMM_WORLD_RANK")
    world = _number(environment, "OMPI_COMM_WORLD_SIZE")
    if rank is None or world is None:
        return None
    return Rank(
        rank=rank,
        world_size=world,
        local_rank=_number(environment, "OMPI_COMM_WORLD_LOCAL_RANK") or 0,
        local_world_size=_number(environment, "OMPI_COMM_WORLD_LOCAL_SIZE") or world,
        launcher=MPIRUN,
        job=_mpi_job(environment),
    )


def _pmi(environment: Mapping[str, str]) -> Rank | None:
    rank, world = _number(environment, "PMI_RANK"), _number(environment, "PMI_SIZE")
    if rank is None or world is None or world < 2:
        return None
    local = _number(environment, "MPI_LOCALRANKID")
    return Rank(
        rank=rank,
        world_size=world,
        local_rank=rank if local is None else local,
        local_world_size=_number(environment, "MPI_LOCALNRANKS") or world,
        launcher=MPIRUN,
        job=_mpi_job(environment),
    )


def slurm_rank(environment: Mapping[str, str]) -> Rank | None:
    """The rank of a task that srun started beside others; else `None`.

    A batch script has SLURM_NTASKS and SLURM_PROCID too, but is no step of several tasks.
    """
    rank, world = _number(environment, "SLURM_PROCID"), _number(environment, "SLURM_NTASKS")
    if rank is None or world is None or world < 2 or "SLURM_STEP_ID" not in environment:
        return None
    step = _number(environment, "SLURM_STEP_NUM_TASKS")
    nodes = _number(environment, "SLURM_STEP_NUM_NODES") or _number(environment, "SLURM_NNODES")
    if step is not None and step != world:
        return None
    return Rank(
        rank=rank,
        world_size=world,
        local_rank=_number(environment, "SLURM_LOCALID") or 0,
        local_world_size=world if (nodes or 1) == 1 else max(1, world // (nodes or 1)),
        launcher=SRUN,
        job=f"slurm-{environment.get('SLURM_JOB_ID', '')}-{environment['SLURM_STEP_ID']}",
    )


def _mpi_job(environment: Mapping[str, str]) -> str:
    for name in ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "HYDI_CONTROL_FD", "PMI_PORT"):
        if environment.get(name):
            return f"mpi-{environment[name]}"
    return ""


def _number(environment: Mapping[str, str], name: str) -> int | None:
    try:
        return int(environment[name])
    except (KeyError, ValueError):
        return None
