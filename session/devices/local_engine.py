"""An engine that starts probes as processes of this machine, each on a device of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...probes.process.interrupts import exit_code, held_back
from ...probes.worker.run_script import die_with_parent
from ..setup.options_handed_over import hand_over
from .engine import Probe, Standing


class LocalEngine:
    """Child processes, which end with this one."""

    def __init__(self) -> None:
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, probe: Probe) -> None:
        """Starts a process whose standard error is the probe's log."""
        if self._scratch is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="ba-devices-")
        variable = hand_over(probe.options, Path(self._scratch.name) / f"{probe.name}.json")
        words = probe.options.script_words
        command = [sys.executable, "-m", "batchadvisor", "run", "--", *words]

        def pin() -> None:
            die_with_parent(signal.SIGTERM)  # as Ctrl-C: it keeps what it measured
            if probe.cores:
                os.sched_setaffinity(0, probe.cores)

        with probe.log.open("wb") as log, held_back():
            self._children[probe.name] = subprocess.Popen(
                command,
                env={**os.environ, **variable},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
                # Nothing of ours runs between fork and exec but this.
                preexec_fn=pin,  # noqa: PLW1509
            )

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
