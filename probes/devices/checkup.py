"""Looks at the machine: what is there for a run, what is not, and why."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from ...records import Check
from ...units import format_bytes
from ..nvml.calls import NvmlRefusedError, ask
from ..nvml.gpus import NvmlDevice, devices, nvml_unavailable
from ..nvml.processes import ProcessTable
from ..nvml.windows import gpm_refused
from . import host
from .visible_gpus import CUDA, visible

OLDEST_TORCH = (2, 6)
TORCH_LIMIT_S = 180.0
SMALL_SHARED_MEMORY = 256 * 1024**2
_TORCH = "from batchadvisor.probes.devices.torch_check import main; main()"
_PROFILING_PARAMETER = Path("/proc/driver/nvidia/params")


def checks(folder: Path) -> tuple[Check, ...]:
    """Everything, in order.

    Args:
        folder: where runs would be written.
    """
    gpus = devices()
    results = [_python(), *_torch(gpus), *_nvidia(gpus), *_memory(), *slurm_checks(os.environ)]
    results += [_writable("working folder", folder)]
    results += [_temporary()]
    results += [_shared_memory(), _compiler(), *_packages()]
    return tuple(results)


def _python() -> Check:
    detail = f"{platform.python_version()} ({sys.executable}) on {platform.platform()}"
    return Check(name="Python", state="ok", detail=detail, needed=True)


# torch -----------------------------------------------------------------------------------------


def _torch(gpus: list[NvmlDevice]) -> list[Check]:
    said, problem = _ask_torch()
    if said is None:
        missing = "No module named 'torch'" in problem
        return [
            Check(
                name="torch",
                state="absent" if missing else "broken",
                detail=problem,
                remedy="Install torch into this environment: pip install torch."
                if missing
                else "Install torch anew; `python -c 'import torch'` fails here.",
                needed=True,
            )
        ]
    return [_version(said), _cpu_step(said, problem), _device(said, gpus), _profiler(said)]


def _ask_torch() -> tuple[dict[str, Any] | None, str]:
    """Runs torch_check.py; returns its last line, and how it ended if not well."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _TORCH],
            capture_output=True,
            text=True,
            timeout=TORCH_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None, f"importing and trying torch took longer than {TORCH_LIMIT_S:.0f} s"
    lines = done.stdout.strip().splitlines()
    problem = ""
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        problem = last[0]
    try:
        said: dict[str, Any] = json.loads(lines[-1])
    except (IndexError, json.JSONDecodeError):
        return None, problem or "it said nothing"
    return said, problem


def _version(said: dict[str, Any]) -> Check:
    build = f"CUDA {said['cuda']}" if said["cuda"] else f"ROCm {said['hip']}" if said["hip"] else ""
    detail = f"{said['version']}, {build or 'built for the CPU alone'} ({said['file']})"
    numbers = tuple(int(part) for part in said["version"].split(".")[:2] if part.isdigit())
    if numbers < OLDEST_TORCH:
        remedy = f"Install torch {OLDEST_TORCH[0]}.{OLDEST_TORCH[1]} or later."
        return Check(name="torch", state="broken", detail=detail, remedy=remedy, needed=True)
    return Check(name="torch", state="ok", detail=detail, needed=True)


def _cpu_step(said: dict[str, Any], problem: str) -> Check:
    name = "optimizer step"
    if "step" in said:
        return Check(name=name, state="ok", detail=said["step"], needed=True)
    detail = said["errors"].get("step") or problem or "the process ended in it"
    remedy = "Install torch anew: it imports and cannot train."
    return Check(name=name, state="broken", detail=detail, remedy=remedy, needed=True)


def _device(said: dict[str, Any], gpus: list[NvmlDevice]) -> Check:
    name = "accelerator"
    error = said["errors"].get("device")
    if error:
        remedy = "Runs on it fail; batchadvisor run --device cpu works."
        return Check(name=name, state="broken", detail=error, remedy=remedy)
    if said.get("device"):
        return Check(name=name, state="ok", detail=said["device"])
    seen = visible(os.environ, gpus)
    if gpus and not seen.names:
        remedy = (
            f"Set {seen.variable} to GPUs that are there, or unset it." if seen.variable else ""
        )
        return Check(name=name, state="broken", detail=f"no GPU: {seen}", remedy=remedy)
    if gpus and not said["cuda"]:
        detail = f"the driver has {len(gpus)} GPU(s), this torch is built for the CPU alone"
        remedy = "Install a CUDA build of torch; until then runs are on the CPU."
        return Check(name=name, state="broken", detail=detail, remedy=remedy)
    if gpus:
        detail = f"the driver has {len(gpus)} GPU(s), torch cannot use them"
        remedy = f"The driver may be too old for CUDA {said['cuda']}: compare with nvidia-smi."
        return Check(name=name, state="broken", detail=detail, remedy=remedy)
    return Check(name=name, state="absent", detail="torch sees none; runs are on the CPU")


def _profiler(said: dict[str, Any]) -> Check:
    seen = said.get("profiler")
    remedy = "Runs work with --no-profile; nothing is known of kernels then."
    if seen is None:
        detail = said["errors"].get("profiler", "the process ended in it")
        return Check(name="profiler", state="broken", detail=detail, remedy=remedy)
    on_gpu = bool(said.get("device")) and bool(said["cuda"])
    detail = f"{seen['operators']} operators of a step seen"
    if on_gpu and not seen["kernels"]:
        detail += ", no kernel: CUPTI is not permitted or not installed"
        return Check(name="profiler", state="broken", detail=detail, remedy=remedy)
    if on_gpu:
        detail += f", {seen['kernels']} kernels"
    return Check(name="profiler", state="ok", detail=detail)


# NVIDIA ----------------------------------------------------------------------------------------


def _nvidia(gpus: list[NvmlDevice]) -> list[Check]:
    reason = nvml_unavailable()
    if reason is not None:
        return [Check(name="NVML", state="absent", detail=reason)]
    if not gpus:
        return [Check(name="NVML", state="absent", detail="the driver counts no GPU")]
    results = [Check(name="NVML", state="ok", detail=f"driver {gpus[0].driver or 'unknown'}")]
    for gpu in gpus:
        results += _gpu(gpu)
    return [*results, _profiling_permission()]


def _gpu(gpu: NvmlDevice) -> list[Check]:
    name = f"GPU {gpu.index}"
    sizes = [
        format_bytes(size) if size is not None else "?"
        for size in (gpu.free_bytes, gpu.total_bytes)
    ]
    results = [Check(name=name, state="ok", detail=f"{gpu.name}, {sizes[0]} of {sizes[1]} free")]
    if gpu.mig_enabled is None:
        detail = gpu.unavailable.get("mig_enabled", "not told")
        results.append(Check(name=f"{name} MIG", state="absent", detail=detail))
    elif gpu.mig_enabled:
        detail = "partitioned: counters of NVML may be those of the whole GPU"
        results.append(Check(name=f"{name} MIG", state="ok", detail=detail))
    else:
        results.append(Check(name=f"{name} MIG", state="ok", detail="not partitioned"))
    try:
        handle = ask("nvmlDeviceGetHandleByIndex", gpu.index)
    except NvmlRefusedError as error:
        return [*results, Check(name=f"{name} handle", state="broken", detail=str(error))]
    refused = gpm_refused(handle)
    results.append(
        Check(
            name=f"{name} GPM",
            state="ok" if refused is None else "absent",
            detail=refused or "occupancy and activity of the multiprocessors can be measured",
        )
    )
    return [*results, _others(name, handle)]


def _others(name: str, handle: Any) -> Check:
    name = f"{name} processes"
    table = ProcessTable([], host_numbers=True).look(handle)
    if table.others is None:
        reason = table.unavailable.get("other_processes", "not told")
        return Check(name=name, state="absent", detail=reason)
    if not table.others:
        return Check(name=name, state="ok", detail="none")
    detail = "others are on it: " + ", ".join(map(str, table.others))
    remedy = "They take memory and disturb times; wait for them or take another GPU."
    return Check(name=name, state="broken", detail=detail, remedy=remedy)


def _profiling_permission() -> Check:
    """Hardware counters; traces of kernels need no permission."""
    name = "profiling permission"
    try:
        text = _PROFILING_PARAMETER.read_text()
    except OSError as error:
        detail = f"{_PROFILING_PARAMETER}: {error.strerror}"
        return Check(name=name, state="absent", detail=detail)
    limited = "RmProfilingAdminOnly: 1" in text
    if limited and os.geteuid() != 0:
        detail = "hardware counters are for administrators (RmProfilingAdminOnly is 1)"
        remedy = "Traces work; Nsight and GPM may not. See NVIDIA's ERR_NVGPUCTRPERM."
        return Check(name=name, state="absent", detail=detail, remedy=remedy)
    return Check(name=name, state="ok", detail="hardware counters may be read")


# the machine -----------------------------------------------------------------------------------


def _memory() -> list[Check]:
    free, total = host.available_bytes(), host.total_bytes()
    cores = f"{host.num_cores()} cores of {host.cpu_name()}"
    results = [Check(name="CPU", state="ok", detail=cores)]
    if free is None:
        detail = "neither the kernel nor a cgroup says what is available"
        remedy = "Give --memory-limit on the CPU."
        results.append(Check(name="memory", state="broken", detail=detail, remedy=remedy))
    else:
        whole = "" if total is None else f" of {format_bytes(total)}"
        detail = f"{format_bytes(free[0])}{whole}: {free[1]}"
        results.append(Check(name="memory", state="ok", detail=detail))
    try:
        Path("/proc/self/clear_refs").write_text("5")
        results.append(Check(name="peak memory", state="ok", detail="the kernel's, reset by size"))
    except OSError as error:
        detail = f"cannot be reset ({error.strerror}): peaks of the CPU only ever grow"
        results.append(Check(name="peak memory", state="absent", detail=detail))
    kills = host.num_oom_kills()
    detail = "the kernel does not say" if kills is None else "counted by the kernel"
    state: Any = "absent" if kills is None else "ok"
    return [*results, Check(name="kills for memory", state=state, detail=detail)]


def _writable(name: str, folder: Path) -> Check:
    try:
        with tempfile.TemporaryFile(dir=folder):
            free = shutil.disk_usage(folder).free
    except OSError as error:
        remedy = "Work in a folder that can be written, or choose one with --output."
        detail = f"{folder}: {error.strerror}"
        return Check(name=name, state="broken", detail=detail, remedy=remedy, needed=True)
    detail = f"{folder}, {format_bytes(free)} free"
    return Check(name=name, state="ok", detail=detail, needed=True)


def _temporary() -> Check:
    name = "temporary folder"
    try:
        folder = Path(tempfile.gettempdir())
    except OSError as error:  # none of those that Python tries can be written
        remedy = "Set TMPDIR to a folder that can be written."
        detail = error.strerror or str(error)
        return Check(name=name, state="broken", detail=detail, remedy=remedy, needed=True)
    return _writable(name, folder)


def _shared_memory() -> Check:
    name, folder = "shared memory", Path("/dev/shm")
    try:
        usage = shutil.disk_usage(folder)
    except OSError as error:
        return Check(name=name, state="absent", detail=f"{folder}: {error.strerror}")
    detail = f"{format_bytes(usage.free)} of {format_bytes(usage.total)} free"
    if usage.total < SMALL_SHARED_MEMORY:
        remedy = "Data workers may die of a bus error: docker run --shm-size=8g."
        return Check(name=name, state="broken", detail=detail, remedy=remedy)
    return Check(name=name, state="ok", detail=detail)


def _compiler() -> Check:
    compiler = next((name for name in map(shutil.which, ("cc", "gcc", "clang")) if name), None)
    if compiler is None:
        detail = "no cc, gcc or clang: torch.compile cannot build its kernels"
        return Check(name="compiler", state="absent", detail=detail)
    return Check(name="compiler", state="ok", detail=compiler)


def _packages() -> list[Check]:
    wanted: tuple[tuple[str, str, str], ...] = (
        ("TensorBoard", "tensorboard", "traces and events can be looked at with it"),
        ("profiler plugin", "torch-tb-profiler", "TensorBoard's view of traces"),
        ("NVML's Python module", "nvidia-ml-py", "counters of NVIDIA GPUs"),
    )
    return [_package(*requirement) for requirement in wanted]


def _package(name: str, package: str, use: str) -> Check:
    version: Callable[[str], str] = metadata.version
    try:
        return Check(name=name, state="ok", detail=f"{package} {version(package)}")
    except metadata.PackageNotFoundError:
        remedy = f"pip install {package}, for {use}."
        return Check(name=name, state="absent", detail="not installed", remedy=remedy)


# What Slurm gave this process, by its variables: the job, the step, GPUs and cores.

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
