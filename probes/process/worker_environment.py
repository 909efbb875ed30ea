"""Makes a worker's command line, its environment variables, its temporary folder.

Where the user's Python keeps no compiled modules, the workers of a run have a place for them.
Containers set PYTHONDONTWRITEBYTECODE, some installers compile nothing, and folders of packages
may be read only. `import torch` then compiles all of it in every process: 4 s in the place of 1.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ...errors import RunError
from ..devices.visible_gpus import CUDA, HIP, ROCR

_OFFLINE = {
    "WANDB_MODE": "disabled",
    "COMET_MODE": "disabled",
    "NEPTUNE_MODE": "debug",
    "CLEARML_OFFLINE_MODE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}
"""Experiment loggers send nothing about a probe."""
CACHE_PREFIX = "PYTHONPYCACHEPREFIX"
DONT_WRITE = "PYTHONDONTWRITEBYTECODE"


class Scratch:
    """A temporary folder for all workers of one run: what the script leaves in TMPDIR goes."""

    @functools.cached_property
    def path(self) -> Path:
        """Made when it is first asked for: a rank that is killed before that leaves none.

        Raises:
            RunError: there is no place for it.
        """
        try:
            # Short: multiprocessing puts sockets in it whose paths must stay below 108 bytes.
            return Path(tempfile.mkdtemp(prefix="ba-"))
        except OSError as error:
            msg = f"no temporary folder can be made: {error.strerror or error}."
            raise RunError(msg, "Set TMPDIR to a folder that can be written.") from error

    def remove(self) -> None:
        """Removes the folder; a file that somebody still writes is left to him."""
        if "path" in vars(self):
            shutil.rmtree(self.path, ignore_errors=True)


def worker_environment(
    device: str, scratch: Path, variables: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The variables of a worker: the user's, loggers offline, own TMPDIR.

    Args:
        device: `cpu`, which hides all GPUs, `cuda`, `auto`, or another torch device type.
        scratch: where temporary files go.
        variables: that say which GPUs it sees; without any it sees what the user allows.
    """
    environment = dict(os.environ)
    environment.update(_OFFLINE)
    environment["TMPDIR"] = str(scratch)
    environment["PYTHONUNBUFFERED"] = "1"
    if device == "cpu":
        environment[CUDA] = ""
        if HIP in environment or ROCR in environment:
            environment[HIP] = "-1"  # it goes before CUDA's
    return environment | dict(variables or {})


def worker_command(read_fd: int, write_fd: int, environment: Mapping[str, str]) -> list[str]:
    """Starts worker/main.py with the flags of this interpreter; it talks over two inherited pipes.

    Args:
        environment: its variables; where they name a place for bytecode, it is used.
    """
    code = (
        "import sys; sys.path[:] = [entry for entry in sys.path if entry]; "
        "from batchadvisor.probes.worker.main import main; "
        f"main({read_fd}, {write_fd})"
    )
    keeps = environment.get(CACHE_PREFIX) != os.environ.get(CACHE_PREFIX)
    flags = [flag for flag in _interpreter_flags() if not (keeps and flag == "-B")]
    return [sys.executable, *flags, "-c", code]


def _interpreter_flags() -> list[str]:
    """The flags that this interpreter was started with; the script gets the same."""
    function = getattr(subprocess, "_args_from_interpreter_flags", None)
    return list(function()) if function is not None else []


def variables_for(environment: Mapping[str, str], scratch: Path) -> dict[str, str]:
    """The variables of a worker, changed where its modules would be compiled in each process.

    Args:
        scratch: a folder that all workers of a run share and that goes with it.
    """
    torch = importlib.util.find_spec("torch")  # found, not imported
    if torch is None or torch.origin is None or is_kept(Path(torch.origin)):
        return dict(environment)
    others = {name: text for name, text in environment.items() if name != DONT_WRITE}
    return {**others, CACHE_PREFIX: str(scratch / "bytecode")}


def is_kept(module: Path) -> bool:
    """Whether the compiled form of a module is there, or Python will put it there by itself."""
    compiled = Path(importlib.util.cache_from_source(module))
    if compiled.exists():
        return True
    folder = compiled.parent
    while not folder.exists():
        folder = folder.parent
    return not sys.dont_write_bytecode and os.access(folder, os.W_OK)
