"""What Slurm gave this process, by its variables: the job, the step, GPUs and cores."""

from __future__ import annotations

from collections.abc import Mapping

from ...records import Check
from .visible_gpus import CUDA

JOB_ID = "SLURM_JOB_ID"
OF_THE_STEP, OF_THE_JOB = "SLURM_STEP_GPUS", "SLURM_JOB_GPUS"
"""Numbers of the GPUs on the node; a step has its own variable, a job's script the other one."""


def slurm_checks(environment: Mapping[str, str]) -> tuple[Check, ...]:
    """Whether an allocation has a GPU and more than a core; nothing outside one.

    >>> inside = {"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "2,3", "SLURM_CPUS_ON_NODE": "8"}
    >>> slurm_checks(inside)[0].detail
    'job 7; GPUs 2,3 of its node (SLURM_JOB_GPUS); 8 cores'
    >>> slurm_checks({})
    ()
    """
    job = environment.get(JOB_ID)
    if job is None:
        return ()
    step, node = environment.get("SLURM_STEP_ID"), environment.get("SLURMD_NODENAME")
    where = f"job {job}" + (f", step {step}" if step else "") + (f" on {node}" if node else "")
    variable = next((name for name in (OF_THE_STEP, OF_THE_JOB) if environment.get(name)), "")
    gpus = environment.get(variable) or environment.get(CUDA, "")
    told = f"GPUs {gpus} of its node ({variable or CUDA})" if gpus else "no GPU"
    cores = environment.get("SLURM_CPUS_PER_TASK") or environment.get("SLURM_CPUS_ON_NODE", "")
    words = [where, told] + ([f"{cores} core{'' if cores == '1' else 's'}"] if cores else [])
    remedy = ""
    if not gpus:
        remedy = "Ask for one: --gres gpu:1, of salloc, sbatch and of srun too."
    elif cores == "1":
        remedy = "Ask for more cores with -c if the DataLoader has workers: they share this one."
    detail = "; ".join(words)
    return (Check(name="Slurm", state="ok" if gpus else "absent", detail=detail, remedy=remedy),)
