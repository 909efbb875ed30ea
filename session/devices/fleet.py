"""Runs of one script on several devices, whatever starts them: waits, limits, keeps what came."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from ...errors import BatchAdvisorError, RunError, UsageError
from ...probes.process.interrupts import held_back
from ...records import DeviceRun, DevicesRecord
from ...units import format_seconds
from ..display import Display
from ..recording.store import DEVICES, RECORD, RunStore, read_record, write_whole
from .engine import Engine, Probe, Standing
from .outcome import Outcome, answer_of, last_error

POLL_PERIOD_S = 0.2
"""Phases on this machine follow each other: a longer wait would be lost between them."""
PROBE_END_S = 45.0
"""A probe that was cancelled gets so long to save and leave; Slurm kills after thirty."""
STILL_WAITING_S = 60.0
"""While nothing else is said, it is said this often what is waited for."""


class Fleet:
    """The probes of one command, and the record of what came of each.

    Args:
        runs: one for each device, in their order; other probes are started for these.
        folder: of all runs, empty or to be made.
        where: said where a probe left no record: why it may be somewhere else.

    Attributes:
        runs: what is known of each device's run, by its name.
        late: probes that did not end within their time.
    """

    def __init__(
        self,
        engine: Engine,
        runs: Sequence[DeviceRun],
        folder: Path,
        display: Display,
        *,
        command: tuple[str, ...],
        where: str = "",
    ) -> None:
        self._engine = engine
        self.runs = {run.device: run for run in runs}
        self._folder = folder
        self._display = display
        self._command = command
        self._where = where
        self._probes: dict[str, Probe] = {}
        self._open: dict[str, Standing] = {}
        self.late: set[str] = set()
        self._interrupted = False
        self._read: dict[str, int] = {}
        self._said_s = time.monotonic()
        self._started_at = datetime.now(timezone.utc).isoformat(timespec="seconds")

    def carry_out(self, phases: Callable[[], None], nothing: Callable[[], RunError]) -> Outcome:
        """Does all of it, and says what came of each device.

        Args:
            phases: calls `probe`.
            nothing: the error where no device was measured.

        Raises:
            RunError: that; or the folder cannot be written.
            UsageError: the folder holds a run already.
        """
        if any((self._folder / name).exists() for name in (RECORD, DEVICES)):
            msg = f"{self._folder} holds a run already."
            raise UsageError(msg, "Choose another folder.")
        with contextlib.closing(RunStore(self._folder)) as store:  # nobody else writes meanwhile
            try:
                return self._carried_out(phases, nothing)
            except RunError:
                if not self._probes:
                    (self._folder / DEVICES).unlink(missing_ok=True)
                    store.discard()
                raise

    def probe(self, probes: Sequence[Probe]) -> None:
        """Starts probes, and waits until all have ended, at most as long as they may take.

        What has not ended by then is cancelled, and keeps what it measured.
        """
        for each in probes:
            with held_back():  # or there would be one that nobody cancels
                self._start(each)
        self._wait(max(each.time_limit_s for each in probes))
        if self._open:
            self.late |= set(self._open)
            self._engine.cancel(sorted(self._open))
            self._wait(PROBE_END_S)
            self._give_up()

    def note(self, name: str, **changes: object) -> None:
        """Notes something of a device's run."""
        self.runs[name] = msgspec.structs.replace(self.runs[name], **changes)

    def has_logs(self) -> bool:
        """Whether any probe said something."""
        return any(probe.log.exists() for probe in self._probes.values())

    def save(self, state: str = "running") -> None:
        """Writes the record.

        Raises:
            RunError: it cannot be written.
        """
        data = msgspec.json.format(msgspec.json.encode(self._record(state)), indent=1)
        try:
            write_whole(self._folder / DEVICES, data)
        except OSError as error:
            what = f"cannot write into {self._folder}: {error.strerror or error}."
            remedy = "Free some space; each device's own record has what it measured."
            raise RunError(what, remedy) from error

    # inside ----------------------------------------------------------------------------------

    def _carried_out(self, phases: Callable[[], None], nothing: Callable[[], RunError]) -> Outcome:
        try:
            self.save()
            phases()
        except KeyboardInterrupt:
            self._interrupted = True
            with contextlib.suppress(KeyboardInterrupt), held_back():
                self._engine.cancel(sorted(self._open))
            with contextlib.suppress(KeyboardInterrupt):  # a second one waits no longer
                self._wait(PROBE_END_S)
        except BaseException:
            with contextlib.suppress(RunError):
                self.save("failed")
            raise
        finally:
            self._engine.close()
        self._give_up()
        state = "interrupted" if self._interrupted else "finished"
        outcome = Outcome(
            record=self._record(state),
            folder=self._folder,
            answers={
                name: answer
                for name, run in self.runs.items()
                if (answer := answer_of(self._folder / (run.folder or name)))
            },
        )
        if not outcome.answers and not self._interrupted:
            self.save("failed")
            raise nothing()
        self.save(state)
        return outcome

    def _start(self, probe: Probe) -> None:
        try:
            self._engine.start(probe)
        except RunError as error:
            self._display.note(f"{probe.name}: {error.what}")
            if probe.name in self.runs:
                self.note(probe.name, error=str(error))
            return
        self._probes[probe.name] = probe
        self._open[probe.name] = Standing(state="waiting")

    def _wait(self, for_s: float) -> None:
        """Waits until all have ended, or for so long."""
        until_s = time.monotonic() + for_s
        while self._open:
            standings = self._engine.look()
            for name in list(self._open):
                if name in standings:
                    self._see(name, standings[name])
            if not self._open or time.monotonic() > until_s:
                return
            self._remind(until_s)
            time.sleep(min(POLL_PERIOD_S, for_s))

    def _give_up(self) -> None:
        for name, standing in list(self._open.items()):
            self._ended(name, msgspec.structs.replace(standing, error="was ended"))

    def _see(self, name: str, now: Standing) -> None:
        self._relay(name)
        before = self._open[name]
        if now.state == "ended":
            self._ended(name, msgspec.structs.replace(now, detail=now.detail or before.detail))
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
        ends = f"; cancelled in {format_seconds(until_s - now_s)}" if until_s < math.inf else ""
        self._say(f"{names}: {what}{ends}")

    def _ended(self, name: str, last: Standing) -> None:
        self._relay(name)
        before = self._open.pop(name)
        if name not in self.runs:
            return
        answer = answer_of(self._folder / name)
        error = last_error(self._probes[name].log) if last.exit_code else ""
        if name in self.late:
            error = _too_late(before, self._probes[name].time_limit_s)
        elif not error and last.error:
            error = last.error
        elif answer is None and not error:
            error = _no_record(self._folder / name, last, self._where)
        elif answer is not None and self._on_a_cpu(name):
            error = "its probe found no GPU and ran on the CPU, so this is no answer for the GPU"
        self.note(name, exit_code=last.exit_code, error=error)
        if answer is not None or not self._interrupted:  # else its twin's answer stays
            self.note(name, folder=name, twin_of=None)
        self._say(f"{name}: {'ended' if answer else 'no answer'}")
        with contextlib.suppress(RunError):
            self.save()

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

    def _record(self, state: str) -> DevicesRecord:
        return DevicesRecord(
            state=state,  # type: ignore[arg-type]
            started_at=self._started_at,
            command=self._command,
            devices=tuple(self.runs.values()),
        )


def _too_late(before: Standing, limit_s: float) -> str:
    limit = format_seconds(limit_s)
    if before.state == "waiting":
        why = f" ({before.detail})" if before.detail else ""
        return f"no node came within --time-limit {limit}{why}"
    return f"it did not end within --time-limit {limit}; what was measured is kept"


def _no_record(folder: Path, last: Standing, where: str) -> str:
    """Why there is nothing to read, as far as it is known."""
    at = f" ({last.detail})" if last.detail else ""
    if (folder / RECORD).exists():
        try:
            reason = read_record(folder).stop_reason or "it ended before anything was measured"
        except BatchAdvisorError as error:
            reason = error.what
        return f"its probe measured nothing{at}: {reason}"
    code = "" if last.exit_code is None else f" with exit code {last.exit_code}"
    return f"its probe ended{code}{at} and left no record{where}"
