"""Options that every adapter takes beside its framework's own arguments."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from ..errors import UsageError
from ..session.recording.store import MEMORY_PAGE, RECORD, SAMPLES
from ..session.setup.options import run_folder

RAY_WORKER = "default_worker.py"
"""The program of every worker of Ray."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of the callback.

    Attributes:
        logdir: folder for the record, the traces and the scalars; TensorBoard can be pointed at
            it. `batchadvisor-runs/<script>-<time>` if not given.
        profile: open profiled windows.
        profile_after: steps before the first window.
        profile_steps: steps in a window.
        profile_every: steps from window to window; one window only if not given.
        max_profiles: windows in a run.
        with_stack: Python stacks in the traces.
        scalars: write TensorBoard scalars.
        noise_scale: estimate the gradient noise scale; costs norms of the gradients in one step of
            `noise_every`.
        noise_every: see there.
        memory_history: have torch record every allocation on a CUDA device in the first 20 steps,
            and leave the last 100,000 events as `snapshot.pickle`; each costs some microseconds.
        batch_size: samples in a full micro-batch, where the loop does not tell.
        margin: share of the memory to leave free in what is advised, 0..1.
        quiet: print nothing.
    """

    logdir: str | Path | None = None
    profile: bool = True
    profile_after: int = 10
    profile_steps: int = 3
    profile_every: int | None = None
    max_profiles: int = 20
    with_stack: bool = False
    scalars: bool = True
    noise_scale: bool = False
    noise_every: int = 10
    memory_history: bool = False
    batch_size: int | None = None
    margin: float = 0.05
    quiet: bool = False


class GivenOptions(TypedDict, total=False):
    """The fields of `Options` beside `logdir`, as the signatures of the callbacks show them."""

    profile: bool
    profile_after: int
    profile_steps: int
    profile_every: int | None
    max_profiles: int
    with_stack: bool
    scalars: bool
    noise_scale: bool
    noise_every: int
    memory_history: bool
    batch_size: int | None
    margin: float
    quiet: bool


_COUNTS = ("profile_after", "profile_steps", "profile_every", "max_profiles", "noise_every")


def checked(options: Options) -> Options:
    """Returns the options after checking them, before the training starts.

    Raises:
        UsageError: one cannot have its value.
    """
    for name in (*_COUNTS, "batch_size"):
        value = getattr(options, name)
        if value is None and name in ("profile_every", "batch_size"):
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            msg = f"{name}={value!r} is not a number of steps or samples."
            raise UsageError(msg, "Give a whole number, 1 or more.")
    margin: Any = options.margin
    if not isinstance(margin, (int, float)) or isinstance(margin, bool) or not 0 <= margin < 1:
        msg = f"margin={margin!r} is not a share of the memory."
        raise UsageError(msg, "Give 0.05 for five percent.")
    return options


def folder_of(options: Options, world_size: int) -> Path:
    """The run's folder. All ranks of one launch find the same one without asking each other."""
    if options.logdir is not None:
        return Path(options.logdir)
    if world_size == 1:
        return run_folder(script(), time.strftime("%Y%m%d-%H%M%S"))
    started = time.localtime(_parent_started_s())
    stamp = time.strftime("%Y%m%d-%H%M%S", started)
    return Path("batchadvisor-runs") / f"{Path(script()).stem or 'run'}-{stamp}"


def keep_earlier(folder: Path) -> None:
    """An earlier run's record in this folder stays, under the time of its start."""
    old = folder / RECORD
    if not old.exists():
        return
    stamp = began = time.strftime("%Y%m%d-%H%M%S", time.localtime(old.stat().st_mtime))
    count = 1
    while (folder / f"{old.stem}-{stamp}{old.suffix}").exists():  # runs of less than a second
        count += 1
        stamp = f"{began}-{count}"
    for name in (RECORD, SAMPLES, MEMORY_PAGE):
        path = folder / name
        if path.exists():
            path.rename(path.with_name(f"{path.stem}-{stamp}{path.suffix}"))


def script() -> str:
    """The script that runs, `notebook` or `ray-worker` where there is none of the user's."""
    main = sys.modules.get("__main__")
    if getattr(main, "__file__", None) is None and "ipykernel" in sys.modules:
        return "notebook"
    name = sys.argv[0] if sys.argv else ""
    if Path(name).name == RAY_WORKER and "ray" in sys.modules:
        return "ray-worker"
    return name if name not in ("", "-c", "-") else "python"


def _parent_started_s() -> float:
    """When the launcher of the ranks started, in seconds since the epoch; the ranks share it."""
    import os

    try:
        text = Path(f"/proc/{os.getppid()}/stat").read_text(errors="replace")
        words = text.rpartition(")")[2].split()
        boot = next(
            int(line.split()[1])
            for line in Path("/proc/stat").read_text().splitlines()
            if line.startswith("btime ")
        )
        return boot + int(words[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, StopIteration, ValueError, IndexError):
        # Not Linux: ranks that come here in the same minute agree all the same.
        return time.time() // 60 * 60
