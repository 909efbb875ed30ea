"""An engine that starts probes as processes of this machine, each on a device of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ...probes.process.interrupts import exit_code
from ...probes.worker.run_script import die_with_parent
from ..setup.options import RunOptions
from ..setup.options_handed_over import hand_over
from .engine import Probe, Standing


def start_run(
    options: RunOptions,
    handed: Path,
    log: Path,
    *,
    before: Callable[[], None],
    working_folder: str | None = None,
) -> subprocess.Popen[bytes]:
    """Starts a run in a session of its own.

    Args:
        handed: file for its options, which the run reads.
        log: gets its standard error.
        before: called in the new process, between fork and exec.
        working_folder: that of this process if not given.
    """
    variable = hand_over(options, handed)
    with log.open("wb") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "batchadvisor", "run", "--", *options.script_words],
            cwd=working_folder,
            env={**os.environ, **variable},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
            # Nothing of ours runs between fork and exec but this.
            preexec_fn=before,  # noqa: PLW1509
        )


class LocalEngine:
    """Child processes, which end with this one."""

    def __init__(self) -> None:
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, probe: Probe) -> None:
        """Starts a process whose standard error is the probe's log."""
        if self._scratch is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="ba-devices-")
        handed = Path(self._scratch.name) / f"{probe.name}.json"

        def pin() -> None:
            die_with_parent(signal.SIGTERM)  # as Ctrl-C: it keeps what it measured
            if probe.cores:
                os.sched_setaffinity(0, probe.cores)

        self._children[probe.name] = start_run(probe.options, handed, probe.log, before=pin)

    def look(self) -> Mapping[str, Standing]:
        """A process runs or has ended; it waits for nothing."""
        codes = {name: child.poll() for name, child in self._children.items()}
        return {
            name: Standing(state="running" if code is None else "ended", exit_code=code)
            for name, code in codes.items()
        }

    def cancel(self, names: Sequence[str]) -> None:
        """Passes on what interrupted this process; Ctrl-C where nothing did."""
        for name in names:
            with contextlib.suppress(ProcessLookupError):
                self._children[name].send_signal(exit_code() - 128)

    def close(self) -> None:
        """Kills what is left, with the processes that it started."""
        for child in self._children.values():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        if self._scratch is not None:
            self._scratch.cleanup()
