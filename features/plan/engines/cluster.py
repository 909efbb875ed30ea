"""`run --engine`: checks, the engine, the options of each probe, the answer."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

import msgspec

from ....errors import RunError, UsageError
from ....probes.distributed.ranks import detect_rank
from ....records import DeviceRun
from ....session.devices.engine import Probe
from ....session.devices.fleet import Fleet
from ....session.devices.outcome import Outcome
from ....session.devices.several import FOR_ONE_RUN, answer
from ....session.display import Display
from ....session.setup.options import RunOptions, check_goal, check_script, run_folder
from ....session.setup.options_as_typed import options_as_typed
from .gpu_types import ClusterEngine, GpuType

EngineName = Literal["slurm", "ray"]
ENGINES: tuple[EngineName, ...] = get_args(EngineName)
OF_ALL_PROBES = (
    "--engine",
    "--gres",
    "--slurm-options",
    "--time-limit",
    "--output",
    "--json",
    "--quiet",
)
"""Options that were typed for all probes and that each probe gets otherwise."""
TIME_LIMIT_S = 3600.0


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """Where the probes shall run.

    Attributes:
        gres: types as Slurm names them; empty for all.
        slurm_options: further ones of `sbatch` and `srun`.
        time_limit_s: of each probe, the wait for a node included; `None` if none was given.
    """

    engine: EngineName
    gres: tuple[str, ...] = ()
    slurm_options: str = ""
    time_limit_s: float | None = None

    @property
    def limit_s(self) -> float:
        """As given, or an hour."""
        return TIME_LIMIT_S if self.time_limit_s is None else self.time_limit_s


def run(options: RunOptions, cluster: Cluster, display: Display) -> Outcome:
    """Probes the script on a GPU of each type.

    Raises:
        UsageError: the options contradict each other, or the engine or its GPUs are not here.
        RunError: nothing was measured.
    """
    _check(options, cluster)
    engine = _engine(cluster)
    display.start()
    try:
        types = engine.types()
        folder = options.output or run_folder(options.script, time.strftime("%Y%m%d-%H%M%S"))
        display.note(f"probes for {', '.join(kind.request for kind in types)} by {cluster.engine}")
        return run_probes(
            engine,
            types,
            {kind.name: probe_options(options, kind, folder) for kind in types},
            folder,
            display,
            command=options.command,
            time_limit_s=cluster.limit_s,
        )
    finally:
        display.close()
        engine.close()


def run_probes(
    engine: ClusterEngine,
    types: Sequence[GpuType],
    options: Mapping[str, RunOptions],
    folder: Path,
    display: Display,
    *,
    command: tuple[str, ...],
    time_limit_s: float,
) -> Outcome:
    """A run of the script on each type, all at the same time.

    Args:
        options: of each type's own run, by its name.
        folder: of all runs, empty or to be made.
        time_limit_s: what has not ended after so many seconds is cancelled, and keeps what it
            measured.

    Raises:
        RunError: nothing was measured on any type.
        UsageError: the folder holds a run already, or cannot be written.
    """
    probes = [
        Probe(
            name=kind.name,
            request=kind.request,
            options=options[kind.name],
            log=folder / f"{kind.name}.log",
            time_limit_s=time_limit_s,
        )
        for kind in types
    ]
    runs = [DeviceRun(device=kind.name, model=kind.request) for kind in types]
    where = "; do all nodes share this folder?"
    fleet = Fleet(engine, runs, folder, display, command=command, where=where)

    def nothing() -> RunError:
        said = {run.device: run.error.removeprefix("Error: ") for run in fleet.runs.values()}
        what = "; ".join(f"{name}: {text.rstrip('.')}" for name, text in said.items() if text)
        remedy = ""
        if fleet.late:
            remedy = "Wait longer with --time-limit, or name another type."
        if fleet.has_logs():
            remedy = f"See the logs in {folder}."
        return RunError(f"nothing was measured on any GPU type. {what}.", remedy)

    return fleet.carry_out(lambda: fleet.probe(probes), nothing)


def probe_options(options: RunOptions, kind: GpuType, folder: Path) -> RunOptions:
    """The options of one probe, with a command that would start it on its node.

    >>> options = RunOptions(
    ...     script="a.py",
    ...     command=("batchadvisor", "run", "--engine", "ray", "--budget", "9s", "a.py"),
    ... )
    >>> probe = probe_options(options, GpuType(name="t4", request="T4"), Path("out"))
    >>> " ".join(probe.command)
    'batchadvisor run --budget 9s --json -o out/t4 a.py'
    """
    words = options.typed_words
    output = folder / kind.name
    typed = options_as_typed(options.command, len(words), leave_out=OF_ALL_PROBES)
    return msgspec.structs.replace(
        options,
        output=output,
        as_json=True,
        quiet=False,
        command=("batchadvisor", "run", *typed, "--json", "-o", str(output), *words),
    )


def cluster_answer(outcome: Outcome, *, width: int, color: bool, as_json: bool) -> str:
    """The table, or everything as JSON; then the command that puts the records together."""
    folders = [str(outcome.folder / name) for name in outcome.answers]
    then = [shlex.join(["batchadvisor", "plan", *folders])] if folders else []
    return answer(outcome, width=width, color=color, as_json=as_json, then=then)


def _check(options: RunOptions, cluster: Cluster) -> None:
    for option, field in {**FOR_ONE_RUN, "--gpus": "gpus"}.items():
        if getattr(options, field):
            msg = f"{option} is for this machine, and --engine runs the script on others."
            raise UsageError(msg, f"Leave {option} or --engine out.")
    if "," in options.device or options.device.partition(":")[2]:
        msg = f"--device {options.device} names a device of this machine."
        raise UsageError(msg, "With --engine a probe takes the GPU that it is given: leave it out.")
    if cluster.limit_s <= 0:
        raise UsageError("--time-limit 0 leaves a probe no time.", "Write 2h, or leave it out.")
    if cluster.engine != "slurm" and (cluster.gres or cluster.slurm_options):
        option = "--gres" if cluster.gres else "--slurm-options"
        raise UsageError(f"{option} is Slurm's.", "Leave it out, or use --engine slurm.")
    rank = detect_rank(os.environ)
    if rank is not None and rank.world_size > 1:
        msg = f"--engine starts the probes itself, and {rank.launcher} started this command "
        raise UsageError(f"{msg}{rank.world_size} times.", "Start it once.")
    check_goal(options.goal)
    if not options.module:
        check_script(options.script_path)


def _engine(cluster: Cluster) -> ClusterEngine:
    if cluster.engine == "ray":
        from .ray_cluster import RayEngine

        return RayEngine()
    from .slurm import SlurmEngine

    return SlurmEngine(cluster.gres, cluster.slurm_options)
