"""Ray: an actor with one GPU for each accelerator type; nodes share no folder.

The actor starts the run in a process of its own, and hands its files over when it has ended. It is
an actor and no task, so that a run can be ended and still hand over what it measured.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ....errors import UsageError
from ....probes.worker.run_script import die_with_parent
from ....session.devices.engine import Probe, Standing
from ....session.devices.local_engine import start_run
from ....session.recording.store import RECORD
from ....session.setup.options import RunOptions
from .gpu_types import GpuType
from .names import slugs

TYPE = "accelerator_type:"
"""Begins the name of the resource by which Ray places work on a type."""
ADDRESS = "RAY_ADDRESS"
REMEDY = "Start it on the head node, by `ray job submit`, or set RAY_ADDRESS."
UNNAMED_TYPE = "GPU"
"""Stands for the type of nodes that name none."""
RAY_LOG = "log"
RAY_CONNECT_S = 10.0
_REMOVE = 'exec 3<&0; { read -r _ <&3; while kill -0 "$0"; do sleep 0.5; done; rm -rf -- "$1"; } &'
KEPT_MIB = 256
"""A run's files above this are left on the node, but for the record: traces may be large."""


class RayEngine:
    """The cluster that `RAY_ADDRESS` names, or the one on this machine."""

    def __init__(self) -> None:
        try:
            import ray
        except ImportError as error:
            msg = "--engine ray needs Ray, which is not installed here."
            raise UsageError(msg, "pip install 'batchadvisor[ray]'") from error
        self._ray: Any = ray
        self._connected = False
        self._started: dict[str, _Started] = {}

    def types(self) -> tuple[GpuType, ...]:
        """The accelerator types of the nodes that have GPUs."""
        self._connect()
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        names = types_of(nodes)
        if not names:
            msg = f"this Ray cluster has no GPUs: its {len(nodes)} nodes name none."
            raise UsageError(msg, "Look at ray status; start nodes with --num-gpus.")
        return tuple(
            GpuType(name=slug, request=name) for slug, name in zip(slugs(names), names, strict=True)
        )

    def start(self, probe: Probe) -> None:
        """Asks for an actor; it comes when a GPU of the type is free."""
        remote = self._ray.remote(Prober)
        kind = probe.request
        placed = {} if kind == UNNAMED_TYPE else {"resources": {f"{TYPE}{kind}": 0.001}}
        actor = remote.options(num_gpus=1, max_restarts=0, **placed).remote()
        options = msgspec.structs.replace(probe.options, output=None)
        self._started[probe.name] = _Started(
            probe,
            actor,
            actor.begin.remote(options, os.getcwd()),  # noqa: PTH109
        )

    def look(self) -> Mapping[str, Standing]:
        """Each actor is asked what its process does, once it is there."""
        for started in self._started.values():
            if started.standing.state != "ended":
                try:
                    started.standing = self._look_at(started)
                except self._ray.exceptions.RayError as error:
                    started.standing = Standing(state="ended", error=_words(error))
        return {name: started.standing for name, started in self._started.items()}

    def cancel(self, names: Sequence[str]) -> None:
        """A process gets SIGTERM; an actor that never came is withdrawn."""
        for name in names:
            started = self._started.get(name)
            if started is None or started.standing.state == "ended":
                continue
            if started.standing.state == "waiting":
                self._ray.kill(started.actor)
                started.standing = Standing(state="ended", detail=started.standing.detail)
            else:
                started.actor.end.remote()

    def close(self) -> None:
        """Processes die with their actors."""
        for started in self._started.values():
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.kill(started.actor)
        self._started.clear()
        if self._connected:
            self._connected = False
            self._ray.shutdown()

    # inside ----------------------------------------------------------------------------------

    def _connect(self) -> None:
        if self._ray.is_initialized():  # a program of the user's that calls us
            return
        address = os.environ.get(ADDRESS) or "auto"
        handler = signal.getsignal(signal.SIGTERM)
        try:
            _check_address(address)  # Ray itself tries for minutes
            self._ray.init(
                address=address,
                log_to_driver=False,
                logging_level="error",
                configure_logging=False,
            )
        except (OSError, RuntimeError, ValueError) as error:
            raise UsageError(f"no Ray cluster answers: {_words(error)}.", REMEDY) from error
        finally:
            signal.signal(signal.SIGTERM, handler)  # Ray has one of its own, which just leaves
        self._connected = True

    def _look_at(self, started: _Started) -> Standing:
        if started.standing.state == "waiting":
            done, _ = self._ray.wait([started.begun], timeout=0)
            if not done:
                return Standing(state="waiting", detail=f"no free {started.probe.request} yet")
            node = self._ray.get(started.begun)
            return Standing(state="running", detail=f"on {node}")
        code, said = self._ray.get(started.actor.look.remote())
        with started.probe.log.open("ab") as log:
            log.write(said)
        if code is None:
            return started.standing
        _write(self._ray.get(started.actor.files.remote()), started.probe.output)
        return Standing(state="ended", exit_code=code, detail=started.standing.detail)


class Prober:
    """Runs the process of a run on a node. Ray makes an actor of it."""

    def __init__(self) -> None:
        self._made: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._watched = -1
        self._read = 0

    def begin(self, options: RunOptions, working_folder: str) -> str:
        """Starts the run; the name of the node.

        Args:
            working_folder: of the command, which the node has if they share one; else that of the
                actor, which Ray's runtime environment brings along.
        """
        # Not before: Ray may end an actor that waits for its turn.
        self._made = Path(tempfile.mkdtemp(prefix="batchadvisor-"))
        run = msgspec.structs.replace(options, output=self._folder / "run")
        try:
            self._process = start_run(
                run,
                self._folder / "options.json",
                self._folder / RAY_LOG,
                before=_end_with_actor,
                working_folder=working_folder if Path(working_folder).is_dir() else None,
            )
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        self._watched = _removed_at_the_end(self._folder, self._process.pid)
        return os.uname().nodename

    def look(self) -> tuple[int | None, bytes]:
        """The exit code, `None` while it runs; what it said since."""
        assert self._process is not None
        code = self._process.poll()
        with (self._folder / RAY_LOG).open("rb") as log:
            log.seek(self._read)
            said = log.read()
        self._read += len(said)
        return code, said

    @property
    def _folder(self) -> Path:
        """What is made once the run begins: nothing else is ever removed."""
        assert self._made is not None
        return self._made

    def end(self) -> None:
        """As Ctrl-C: it saves what it measured, and leaves."""
        assert self._process is not None
        self._process.terminate()

    def files(self) -> dict[str, bytes]:
        """The files of the run, the record first, as many as are not too large together."""
        run = self._folder / "run"
        paths = [path for path in run.rglob("*") if path.is_file()]
        paths.sort(key=lambda path: (path.name != RECORD, path.stat().st_size))
        files: dict[str, bytes] = {}
        left = KEPT_MIB << 20
        for path in paths:
            left -= path.stat().st_size
            if left < 0 and path.name != RECORD:
                break
            files[str(path.relative_to(run))] = path.read_bytes()
        shutil.rmtree(self._folder, ignore_errors=True)
        return files


def _check_address(address: str) -> None:
    """Fails fast where nobody listens; addresses of other kinds are left to Ray.

    Raises:
        OSError: nobody does.
    """
    host, _, port = address.rpartition(":")
    if host and port.isdecimal() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), RAY_CONNECT_S).close()


def _removed_at_the_end(folder: Path, pid: int) -> int:
    """Has the folder removed once this process and that one are gone, however they end.

    The shell that does it is nobody's child: Ray kills the children of an actor that it kills.

    Returns:
        An open pipe, which tells the shell that this process lives.
    """
    reading, writing = os.pipe()
    subprocess.run(
        ["/bin/sh", "-c", _REMOVE, str(pid), os.fspath(folder)],
        stdin=reading,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        check=False,
    )
    os.close(reading)
    return writing


def _end_with_actor() -> None:
    die_with_parent(signal.SIGTERM)


class _Started:
    def __init__(self, probe: Probe, actor: Any, begun: Any) -> None:
        self.probe = probe
        self.actor = actor
        self.begun = begun
        self.standing = Standing(state="waiting")


def types_of(nodes: Sequence[Mapping[str, float]]) -> list[str]:
    """The accelerator types of nodes with GPUs, by their resources; Ray lists nodes in any order.

    >>> types_of([{"CPU": 8.0}, {"GPU": 4.0, "accelerator_type:A100": 1.0}, {"GPU": 1.0}])
    ['A100', 'GPU']
    """
    names: dict[str, None] = {}
    for resources in nodes:
        if resources.get("GPU", 0) >= 1:
            own = [name.removeprefix(TYPE) for name in resources if name.startswith(TYPE)]
            names.update(dict.fromkeys(own or [UNNAMED_TYPE]))
    return sorted(names)


def _write(files: Mapping[str, bytes], folder: Path) -> None:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _words(error: BaseException) -> str:
    """The last line of what Ray says."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1].rstrip(".") if lines else type(error).__name__
