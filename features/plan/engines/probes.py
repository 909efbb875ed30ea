"""Probes on the GPUs of a cluster, whatever engine starts them: waits, limits, keeps what came."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from ....errors import BatchAdvisorError, RunError, UsageError
from ....probes.process.interrupts import held_back
from ....records import DeviceRun, DevicesRecord
from ....reports.words.wording import plural
from ....session.devices.outcome import Outcome, answer_of, last_error
from ....session.display import Display
from ....session.recording.store import DEVICES, RECORD, RunStore, read_record, write_whole
from ....session.setup.options import RunOptions
from ....units import format_seconds
from .engine import Engine, GpuType, Probe, Standing

POLL_PERIOD_S = 0.5
PROBE_END_S = 45.0
"""A probe that was cancelled gets so long to save and leave; Slurm kills after thirty."""
STILL_WAITING_S = 60.0
"""While nothing else is said, it is said this often what is waited for."""


def run_probes(
    engine: Engine,
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
    if any((folder / name).exists() for name in (RECORD, DEVICES)):
        raise UsageError(f"{folder} holds a run already.", "Choose another folder.")
    probes = [
        Probe(
            type=kind,
            options=options[kind.name],
            log=folder / f"{kind.name}.log",
            time_limit_s=time_limit_s,
        )
        for kind in types
    ]
    with contextlib.closing(RunStore(folder)) as store:
        current = _Run(engine, probes, folder, display, command=command, time_limit_s=time_limit_s)
        try:
            return current.all()
        except RunError:
            if current.nothing_started:
                (folder / DEVICES).unlink(missing_ok=True)
                store.discard()
            raise


class _Run:
    def __init__(
        self,
        engine: Engine,
        probes: Sequence[Probe],
        folder: Path,
        display: Display,
        *,
        command: tuple[str, ...],
        time_limit_s: float,
    ) -> None:
        self._engine = engine
        self._probes = {probe.name: probe for probe in probes}
        self._folder = folder
        self._display = display
        self._command = command
        self._limit_s = time_limit_s
        self._runs = {
            probe.name: DeviceRun(device=probe.name, model=probe.type.request) for probe in probes
        }
        self._open: dict[str, Standing] = {}
        self._late: set[str] = set()
        self._started = False
        self._read: dict[str, int] = {}
        self._said_s = time.monotonic()
        self._started_at = datetime.now(timezone.utc).isoformat(timespec="seconds")

    def all(self) -> Outcome:
        """Starts them, waits for them, and says what came of each."""
        self._save("running")
        state = "finished"
        try:
            for probe in self._probes.values():
                self._start(probe)
            self._wait(self._limit_s)
            if self._open:
                self._late = set(self._open)
                self._engine.cancel(sorted(self._open))
                self._wait(PROBE_END_S)
        except KeyboardInterrupt:
            state = "interrupted"
            with contextlib.suppress(KeyboardInterrupt), held_back():
                self._engine.cancel(sorted(self._open))
            with contextlib.suppress(KeyboardInterrupt):  # a second one waits no longer
                self._wait(PROBE_END_S)
        except BaseException:
            with contextlib.suppress(RunError):
                self._save("failed")
            raise
        finally:
            self._engine.close()
        for name in list(self._open):
            self._ended(name, msgspec.structs.replace(self._open[name], error="was ended"))
        outcome = Outcome(
            record=self._record(state),
            folder=self._folder,
            answers={
                name: answer for name in self._runs if (answer := answer_of(self._folder / name))
            },
        )
        if not outcome.answers and state == "finished":
            self._save("failed")
            raise self._nothing()
        self._save(state)
        return outcome

    @property
    def nothing_started(self) -> bool:
        """Whether the engine refused all of them."""
        return not self._started

    def _nothing(self) -> RunError:
        said = {run.device: run.error.removeprefix("Error: ") for run in self._runs.values()}
        what = "; ".join(f"{name}: {text.rstrip('.')}" for name, text in said.items() if text)
        remedy = ""
        if self._late:
            remedy = "Wait longer with --time-limit, or name another type."
        if any(probe.log.exists() for probe in self._probes.values()):
            remedy = f"See the logs in {self._folder}."
        return RunError(f"nothing was measured on any GPU type. {what}.", remedy)

    def _start(self, probe: Probe) -> None:
        try:
            self._engine.start(probe)
        except RunError as error:
            self._display.note(f"{probe.name}: {error.what}")
            self._note(probe.name, error=str(error))
            return
        self._started = True
        self._open[probe.name] = Standing(state="waiting")

    def _wait(self, limit_s: float) -> None:
        """Waits until all have ended, or for so long."""
        until_s = time.monotonic() + limit_s
        while self._open:
            standings = self._engine.look()
            for name in list(self._open):
                if name in standings:
                    self._see(name, standings[name])
            if not self._open or time.monotonic() > until_s:
                return
            self._remind(until_s)
            time.sleep(min(POLL_PERIOD_S, limit_s))

    def _see(self, name: str, now: Standing) -> None:
        self._relay(name)
        before = self._open[name]
        if now.state == "ended":
            self._ended(name, now if now.detail else _with_detail(now, before))
            return
        if now != before and now.detail:
            words = "waiting" if now.state == "waiting" else "running"
            self._say(f"{name}: {words}, {now.detail}")
        self._open[name] = now

    def _remind(self, until_s: float) -> None:
        now_s = time.monotonic()
        if now_s < self._said_s + STILL_WAITING_S:
            return
        waiting = [name for name, at in self._open.items() if at.state == "waiting"]
        names = ", ".join(waiting or self._open)
        what = "waiting for a node" if waiting else "running"
        self._say(f"{names}: {what}; cancelled in {format_seconds(until_s - now_s)}")

    def _ended(self, name: str, last: Standing) -> None:
        self._relay(name)
        before = self._open.pop(name)
        answer = answer_of(self._folder / name)
        error = last_error(self._probes[name].log) if last.exit_code else ""
        if name in self._late:
            error = self._too_late(before)
        elif not error and last.error:
            error = last.error
        elif answer is None and not error:
            error = _no_record(self._folder / name, last)
        elif answer is not None and self._on_a_cpu(name):
            error = "its probe found no GPU and ran on the CPU, so this is no answer for the GPU"
        self._note(name, folder=name, exit_code=last.exit_code, error=error)
        num = 0 if answer is None else len(answer[0].trials)
        self._say(f"{name}: {'ended' if answer else 'no answer'}, {plural(num, 'trial')}")
        with contextlib.suppress(RunError):
            self._save("running")

    def _too_late(self, before: Standing) -> str:
        limit = format_seconds(self._limit_s)
        if before.state == "waiting":
            why = f" ({before.detail})" if before.detail else ""
            return f"no node came within --time-limit {limit}{why}"
        return f"it did not end within --time-limit {limit}; what was measured is kept"

    def _on_a_cpu(self, name: str) -> bool:
        answer = answer_of(self._folder / name)
        asked = self._probes[name].options.device
        device = None if answer is None else answer[0].device
        return asked == "auto" and device is not None and device.kind == "cpu"

    def _relay(self, name: str) -> None:
        """Relays the lines that the probe has printed since."""
        with contextlib.suppress(OSError), self._probes[name].log.open("rb") as log:
            log.seek(self._read.get(name, 0))
            *lines, _ = log.read().split(b"\n")
            self._read[name] = self._read.get(name, 0) + sum(len(line) + 1 for line in lines)
            for line in lines:
                text = line.decode(errors="replace").rstrip()
                self._say(f"{name}: {text.removeprefix('batchadvisor: ')}")

    def _say(self, text: str) -> None:
        self._said_s = time.monotonic()
        self._display.note(text)

    def _note(self, name: str, **changes: object) -> None:
        self._runs[name] = msgspec.structs.replace(self._runs[name], **changes)

    def _record(self, state: str) -> DevicesRecord:
        return DevicesRecord(
            state=state,  # type: ignore[arg-type]
            started_at=self._started_at,
            command=self._command,
            devices=tuple(self._runs.values()),
        )

    def _save(self, state: str) -> None:
        data = msgspec.json.format(msgspec.json.encode(self._record(state)), indent=1)
        try:
            write_whole(self._folder / DEVICES, data)
        except OSError as error:
            what = f"cannot write into {self._folder}: {error.strerror or error}."
            raise RunError(what, "Free some space; each type's own record is complete.") from error


def _with_detail(now: Standing, before: Standing) -> Standing:
    return msgspec.structs.replace(now, detail=before.detail)


def _no_record(folder: Path, last: Standing) -> str:
    """Why there is nothing to read, as far as it is known."""
    where = f" ({last.detail})" if last.detail else ""
    if (folder / RECORD).exists():
        try:
            reason = read_record(folder).stop_reason or "it ended before anything was measured"
        except BatchAdvisorError as error:
            reason = error.what
        return f"its probe measured nothing{where}: {reason}"
    code = "" if last.exit_code is None else f" with exit code {last.exit_code}"
    return f"its probe ended{code}{where} and left no record; do all nodes share this folder?"
