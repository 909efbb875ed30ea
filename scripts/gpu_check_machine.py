"""The machine that `scripts/gpu-check` runs on: what it is, and what is missing on it."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from importlib import metadata
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


def look(number: int, environment: dict[str, str], packages: Sequence[str] = ()) -> dict[str, Any]:
    """Device, driver and versions, as a process of the checks' own environment sees them.

    Args:
        number: of the part.
        environment: of its steps.
        packages: whose versions are wanted, under `packages`.

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
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    version = tuple(int(part) for part in re.findall(r"\d+", answer["torch"])[:2])
    if version < OLDEST_TORCH:
        raise CannotCheckError(f"torch {answer['torch']} is too old: 2.6 or later is needed.")
    if number and not answer["count"]:
        raise CannotCheckError(
            f"part {number} needs a CUDA device, and torch {answer['torch']} sees none. "
            "`batchadvisor doctor` says why; --part 0 needs no GPU."
        )
    versions = _versions(environment, packages)
    return {**answer, **_driver(environment), "packages": versions}


def _asked(
    code: str, words: Iterable[str], environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """What a Python with these variables prints."""
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


def _versions(environment: dict[str, str], packages: Sequence[str]) -> dict[str, str | None]:
    code = (
        "import json, sys; from importlib import metadata as m; "
        "have = {d.metadata['Name'].lower(): d.version for d in m.distributions()}; "
        "print(json.dumps({name: have.get(name) for name in sys.argv[1:]}))"
    )
    done = _asked(code, packages, environment)
    try:
        versions: dict[str, str | None] = json.loads(done.stdout)
    except json.JSONDecodeError:
        return {}
    return versions


def _driver(environment: dict[str, str]) -> dict[str, Any]:
    code = (
        "import json; from batchadvisor.probes.nvml.gpus import devices, nvml_unavailable; "
        "d = devices(); print(json.dumps({'driver': d[0].driver if d else None, "
        "'nvml': [device.name for device in d], 'nvml_unavailable': nvml_unavailable()}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    try:
        driver: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, json.JSONDecodeError):
        return {"driver": None, "nvml_unavailable": done.stderr.strip()[-300:]}
    return driver


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
    before = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([str(home), str(site), *([before] if before else [])])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
    if missing and wheels is not None:
        install(wheels, site)
        _check_all_there(environment, wheels)
    return environment


def install(wheels: Path, site: Path) -> None:
    """Unpacks what the machine lacks; its own packages come first.

    A wheel that does not fit this Python, or is not needed, is skipped with a line.
    """
    have = {
        _plain(str(distribution.metadata["Name"])): "this machine has its own"
        for distribution in _installed()
    }
    # The newest version first, as far as names tell it.
    for wheel in sorted(wheels.glob("*.whl"), reverse=True):
        name = _plain(wheel.name.split("-")[0])
        if NOT_CARRIED.match(wheel.name):
            have[name] = "the torch that is here is the one to check"
        if name in have:
            print(f"skipped {wheel.name}: {have[name]}", file=sys.stderr)
            continue
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps"]
        command += ["--no-compile", "--disable-pip-version-check", "--target", str(site)]
        done = subprocess.run([*command, str(wheel)], capture_output=True, text=True, check=False)
        if done.returncode:
            why = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
            print(f"skipped {wheel.name}: {why}", file=sys.stderr)
        else:
            have[name] = f"{wheel.name} fits"


def _installed() -> list[metadata.Distribution]:
    return [
        distribution for distribution in metadata.distributions() if distribution.metadata["Name"]
    ]


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _check_all_there(environment: dict[str, str], wheels: Path) -> None:
    code = (
        "import importlib.util, sys; "
        "print(*(name for name in sys.argv[1:] if importlib.util.find_spec(name) is None))"
    )
    done = _asked(code, NEEDED, environment)
    missing = sorted(NEEDED[module] for module in done.stdout.split())
    if missing or done.returncode:
        names = " ".join(missing) or done.stderr[-300:]
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise CannotCheckError(
            f"missing for Python {python}: {names}; no wheel in {wheels} has it. "
            "CONTRIBUTING.md has the command that fetches them."
        )
