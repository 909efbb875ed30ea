"""The machine that `scripts/gpu-check` runs on: what it is, and what is missing on it."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
OLDEST_TORCH = (2, 6)
NEEDED = {
    "msgspec": "msgspec",
    "numpy": "numpy",
    "click": "click",
    "rich": "rich",
    "jinja2": "jinja2",
    "pynvml": "nvidia-ml-py",
    "tensorboard": "tensorboard",
    "pytest": "pytest",
    "pytest_timeout": "pytest-timeout",
    "hypothesis": "hypothesis",
}
"""Modules that a check uses, and the packages that hold them."""
NOT_CARRIED = re.compile(r"(torch|triton|nvidia_(?!ml_py))[\w.]*-", re.IGNORECASE)
"""Wheels that stay where they are: the torch that is installed is the one to check."""


class CannotCheckError(Exception):
    """This machine lacks what a part needs."""


def look(number: int, environment: dict[str, str]) -> dict[str, Any]:
    """Device, driver and versions, as a process of the checks' own environment sees them.

    Raises:
        CannotCheckError: no torch, one too old, or no CUDA device for a part that needs one.
    """
    code = (
        "import json, torch; c = torch.cuda.is_available(); print(json.dumps({"
        "'torch': str(torch.__version__), 'cuda': torch.version.cuda, "
        "'name': torch.cuda.get_device_name() if c else 'cpu', "
        "'count': torch.cuda.device_count() if c else 0}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        message = f"torch cannot be imported: {last}. Install torch 2.6 or later; none is carried."
        raise CannotCheckError(message)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    version = tuple(int(one) for one in re.findall(r"\d+", found["torch"])[:2])
    if version < OLDEST_TORCH:
        raise CannotCheckError(f"torch {found['torch']} is too old: 2.6 or later is needed.")
    if number and not found["count"]:
        raise CannotCheckError(
            f"part {number} needs a CUDA device, and torch {found['torch']} sees none. "
            "`batchadvisor doctor` says why; --part 0 needs no GPU."
        )
    return {**found, **_driver(environment)}


def _driver(environment: dict[str, str]) -> dict[str, Any]:
    code = (
        "import json; from batchadvisor.probes.nvml import devices, nvml_unavailable; "
        "d = devices(); print(json.dumps({'driver': d[0].driver if d else None, "
        "'nvml': [one.name for one in d], 'nvml_unavailable': nvml_unavailable()}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    try:
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, json.JSONDecodeError):
        return {"driver": None, "nvml_unavailable": done.stderr.strip()[-300:]}
    return found


def prepare(scratch: Path, wheels: Path | None) -> dict[str, str]:
    """Variables under which `import batchadvisor` is this repository, with what was missing.

    Raises:
        CannotCheckError: something is missing and no wheel has it.
    """
    home, site = scratch / "home", scratch / "site"
    home.mkdir()
    (home / "batchadvisor").symlink_to(ROOT)  # whatever the clone's folder is called
    missing = sorted(
        package for module, package in NEEDED.items() if importlib.util.find_spec(module) is None
    )
    if missing and wheels is None:
        names = " ".join(missing)
        raise CannotCheckError(f"missing: {names}. Carry their wheels and name them: --wheels.")
    if missing:
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps"]
        files = sorted(
            str(one) for one in (wheels or ROOT).glob("*.whl") if not NOT_CARRIED.match(one.name)
        )
        if not files:
            raise CannotCheckError(f"there is no wheel in {wheels}.")
        done = subprocess.run(
            [*command, "--target", str(site), *files], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise CannotCheckError(f"the wheels in {wheels} do not install: {done.stderr[-300:]}")
    before = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([str(home), str(site), *([before] if before else [])])
    return {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
