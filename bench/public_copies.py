"""Fresh copies of the scripts of bench/public_scripts.py with their data, and processes in them."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import made_data
from common import HERE

PUBLIC, STAND_INS = HERE / "public", HERE / "stand_ins"
_BEFORE_LIMIT_S = 120.0
_ENDS_IN_S = 10.0
_MODULES = {
    "pyyaml": "yaml",
    "scikit-learn": "sklearn",
    "torch-einops-utils": "torch_einops_utils",
    "patool": "patoolib",
}


def made(script: dict[str, Any], place: Path, clones: Path | None) -> str:
    """Lays a fresh copy of the script and its data; says what it lacks."""
    missing = [each for each in script.get("packages", []) if not _is_there(each)]
    if missing:
        return f"not installed: {', '.join(missing)}"
    if "repo" in script:
        if lack := _checked_out(script, place, clones):
            return lack
    elif "package" in script:
        place.mkdir()
        for name in script["ours"]:
            shutil.copy(PUBLIC / name, place)
    else:
        shutil.copytree(PUBLIC, place, ignore=shutil.ignore_patterns("__pycache__"))
    for function, arguments in script.get("data", []):
        getattr(made_data, function)(place, **arguments)
    if "before" in script:
        before = place / script["before"]
        code, printed, said = limited(
            [sys.executable, before.name],
            before.parent,
            variables_of(script, place),
            _BEFORE_LIMIT_S,
        )
        if code != 0:
            return f"{before.name} failed: {(said or printed).strip()[-300:]}"
    return ""


def _checked_out(script: dict[str, Any], place: Path, clones: Path | None) -> str:
    repo, commit = script["repo"], script["commit"]
    if clones is None:
        return f"needs --clones DIR, where DIR holds a clone of {repo}"
    name = repo.rpartition("/")[2]
    candidates = [clones / name / ".git", clones / name, clones / f"{name}.git"]
    git = next((path for path in candidates if (path / "objects").is_dir()), None)
    if git is None:
        return f"no clone of {repo} in the folder of --clones"
    place.mkdir()
    command = ["git", f"--git-dir={git}", "archive", commit, "--", *script["take"]]
    archive = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    unpacked = subprocess.run(["tar", "x", "-C", place], stdin=archive.stdout, check=False)
    _, said = archive.communicate()
    if archive.returncode or unpacked.returncode:
        return f"commit {commit[:10]} cannot be read: {said.decode().strip()[-300:]}"
    return ""


def variables_of(script: dict[str, Any], place: Path) -> dict[str, str]:
    """Python looks in stand-ins and the clone; hubs of models are not asked."""
    # A machine with a GPU has a torchvision for its torch.
    missing = [] if script.get("device") == "cuda" else ["torchvision"]
    folders = [STAND_INS / name for name in (*missing, *script.get("stand_ins", []))]
    folders += [place / below for below in script.get("path", [])]
    folders += [Path(before) for before in filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, folders)),
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(place / ".hub"),
        "WANDB_MODE": "offline",
    }


def without_paths(told: Any, place: Path) -> Any:
    """What was told, all text in it without the folders of this machine."""
    if isinstance(told, dict):
        return {name: without_paths(value, place) for name, value in told.items()}
    if isinstance(told, list):
        return [without_paths(value, place) for value in told]
    if not isinstance(told, str):
        return told
    for folder in (place.resolve(), place, HERE.parent):
        told = told.replace(f"{folder}/", "")
    return re.sub(r"(?<![\w./:])/(?:[\w.+-]+/)+(?=[\w.+-])", "", told)


def _is_there(package: str) -> bool:
    return importlib.util.find_spec(_MODULES.get(package, package)) is not None


# processes -----------------------------------------------------------------------------------


def limited(
    command: Sequence[str],
    folder: Path,
    variables: dict[str, str],
    limit_s: float,
    stdin: int = subprocess.DEVNULL,
) -> tuple[int | None, str, str]:
    """Exit code, `None` where the command had to be ended, and what it printed."""
    with subprocess.Popen(
        command,
        cwd=folder,
        env=variables,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            printed, said = process.communicate(timeout=limit_s)
            code: int | None = process.returncode
        except subprocess.TimeoutExpired:
            code = None
            os.killpg(process.pid, signal.SIGTERM)  # batchadvisor ends its own processes then
            try:
                printed, said = process.communicate(timeout=_ENDS_IN_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                printed, said = process.communicate()
        finally:  # what is left of its children; all of it where this benchmark is interrupted
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return code, printed, said


@contextlib.contextmanager
def busy(num: int) -> Iterator[None]:
    """So many processes that compute all the time."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(num)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
