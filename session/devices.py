"""`batchadvisor run` on several devices at once: one whole run a device, each in its own process.

The first device of each model is probed in full, all of them at the same time, since they share
the host. Then every device of a model that occurs more than once runs the size found, again at
the same time; one that is weaker than its twin is probed in full as well.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import BinaryIO

import msgspec

from ..advisor.advise import advise
from ..advisor.facts import pooled, ran
from ..advisor.twins import representatives
from ..errors import BatchAdvisorError, RunError, UsageError
from ..probes import host
from ..probes.interrupts import held_back, signal_of
from ..probes.steered import die_with_parent
from ..records import Advice, DeviceRun, DevicesRecord, RunRecord, Spread
from .device_choice import Device
from .devices_outcome import Outcome, twin_check
from .display import Display
from .options import without
from .store import DEVICES, RECORD, RunStore, read_record, write_whole

CHECKED = ("--sizes", "--start", "--max-batch", "--budget", "--profile-schedule")
CHECKED_FLAGS = ("--keep-effective-batch", "--stacks", "--no-profile")
"""The user's options that a check of twins does not take: it runs one size, for a short time."""
END_S = 30.0
"""A run that was interrupted gets so long to save and leave."""
CHECK_BUDGET_S = 30.0
RELAY_S = 5.0
"""What a run that ended said last is waited for so long."""


def run_devices(
    found: Sequence[Device],
    options: Sequence[str],
    script: Sequence[str],
    folder: Path,
    display: Display,
    *,
    memory_limit_bytes: int | None,
) -> Outcome:
    """Probes all of them.

    Args:
        options: of the run, from the verb on, without its choice of devices and its folder.
        script: the script and its arguments.
        folder: of all runs, empty or to be made.

    Raises:
        RunError: nothing was measured on any device.
        UsageError: the folder holds a run already, or cannot be written.
    """
    if any((folder / one).exists() for one in (RECORD, DEVICES)):
        raise UsageError(f"{folder} holds a run already.", "Choose another folder.")
    with contextlib.closing(RunStore(folder)):  # nobody else writes into it meanwhile
        return _Run(found, options, script, folder, display=display, limit=memory_limit_bytes).all()


def check_options(options: Sequence[str], size: int) -> list[str]:
    """The options of a check of twins: the user's, for one size and a short time.

    >>> check_options(["run", "-q", "--start", "8", "--stacks", "--max-batch=64"], 32)
    ['run', '-q', '--sizes', '32', '--no-profile', '--budget', '30s']
    """
    kept = without(options, with_value=CHECKED, flags=CHECKED_FLAGS)
    return [*kept, "--sizes", str(size), "--no-profile", "--budget", f"{CHECK_BUDGET_S:.0f}s"]


class _Run:
    def __init__(
        self,
        found: Sequence[Device],
        options: Sequence[str],
        script: Sequence[str],
        folder: Path,
        *,
        display: Display,
        limit: int | None,
    ) -> None:
        self._devices = list(found)
        self._models = [one.model for one in found]
        self._options = list(options)
        self._script = list(script)
        self._folder = folder
        self._display = display
        self._limit = limit
        self._runs = {
            one.name: DeviceRun(device=one.name, model=one.model) for one in self._devices
        }
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._relays: dict[str, threading.Thread] = {}
        self._state = "running"
        self._started_at = datetime.now(timezone.utc).isoformat(timespec="seconds")

    def all(self) -> Outcome:
        """Probes, checks the twins, probes the weak ones."""
        self._save()
        try:
            self._probe(list(representatives(self._models)))
            weak = self._check_twins()
            if weak:
                names = ", ".join(self._devices[place].name for place in weak)
                self._display.note(f"{names}: weaker than its twin, probing it in full")
                self._probe(weak)
            self._state = "finished"
        except KeyboardInterrupt as pressed:
            self._interrupt(signal_of(pressed))
            self._state = "interrupted"
        except BaseException:
            self._state = "failed"  # nobody goes on with it
            with contextlib.suppress(RunError):
                self._save()
            raise
        finally:
            self._kill()
        outcome = self._outcome()
        if not outcome.answers and self._state == "finished":
            self._state = "failed"
            self._save()
            said = next((one.error for one in self._runs.values() if one.error), "")
            raise RunError(
                f"no device could be measured. {said.removeprefix('Error: ')}".strip(),
                "" if said else f"See the logs in {self._folder}.",
            )
        self._save()
        return outcome

    # inside ----------------------------------------------------------------------------------

    def _probe(self, places: Sequence[int]) -> None:
        started = {
            self._devices[place].name: self._start(place, "", self._options) for place in places
        }
        for name, child in started.items():
            self._note(name, folder=name, twin_of=None, exit_code=child.wait())
            error = self._errors(name)
            if child.returncode not in (0, None) and error:
                self._note(name, error=error)
        self._save()

    def _check_twins(self) -> list[int]:
        """Runs the size found on all devices of a model at once; the places of weak ones."""
        weak: list[int] = []
        for model in dict.fromkeys(self._models):
            places = [place for place, one in enumerate(self._models) if one == model]
            first = self._devices[places[0]].name
            answer = self._answer(first)
            if self._runs[first].exit_code == UsageError.exit_code:
                continue  # the same command is wrong on every device
            if len(places) < 2 or answer is None or answer[1].recommended is None:
                weak += places[1:]  # nothing to check against: each for itself
                continue
            size = answer[1].recommended.batch_size
            self._display.note(f"batch {size} on {len(places)} devices at the same time: {model}")
            options = check_options(self._options, size)
            children = [self._start(place, "-check", options) for place in places]
            for child in children:
                child.wait()
            speeds = [self._speed(f"{self._devices[place].name}-check", size) for place in places]
            for place, speed in zip(places[1:], speeds[1:], strict=True):
                name = self._devices[place].name
                check = twin_check(first, size, speed, speeds[0], f"{name}-check")
                self._note(name, twin_of=first, folder=first, check=check)
                if check.verdict in ("weak", "strong") or speed is None:
                    weak.append(place)
            self._save()
        return weak

    def _start(self, place: int, suffix: str, options: list[str]) -> subprocess.Popen[bytes]:
        device = self._devices[place]
        name = f"{device.name}{suffix}"
        command = [
            *(sys.executable, "-m", "batchadvisor", *options, "--json"),
            *("--device", device.option, "-o", str(self._folder / name)),
            *self._memory(device),
            *self._script,
        ]
        cores = device.cores

        def pin() -> None:
            die_with_parent(signal.SIGTERM)  # as Ctrl-C: it keeps what it measured
            if cores:
                os.sched_setaffinity(0, cores)

        log = (self._folder / f"{name}.log").open("wb")
        with held_back():
            child = self._children[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
                # Nothing of ours runs between fork and exec but this.
                preexec_fn=pin,  # noqa: PLW1509
            )
            relay = threading.Thread(target=self._relay, args=(child, name, log), daemon=True)
            self._relays[name] = relay
            relay.start()
        return child

    def _memory(self, device: Device) -> list[str]:
        """Logical CPU devices share one memory; each may use its part."""
        free = host.available_bytes()
        if not device.cores or self._limit is not None or free is None:
            return []
        return ["--memory-limit", str(free[0] // len(self._devices))]

    def _relay(self, child: subprocess.Popen[bytes], name: str, log: BinaryIO) -> None:
        assert child.stderr is not None
        with log, child.stderr:
            for line in child.stderr:
                log.write(line)
                text = line.decode(errors="replace").rstrip()
                self._display.note(f"{name}: {text.removeprefix('batchadvisor: ')}")

    def _errors(self, name: str) -> str:
        self._relays[name].join(RELAY_S)  # its last words may still be on their way to the log
        with contextlib.suppress(OSError):
            lines = (self._folder / f"{name}.log").read_text("utf-8", "replace").splitlines()
            return next((one for one in reversed(lines) if one.startswith("Error: ")), "")
        return ""

    def _answer(self, name: str) -> tuple[RunRecord, Advice] | None:
        try:
            record = read_record(self._folder / name)
        except BatchAdvisorError:
            return None
        return (record, advise(record)) if ran(record) else None

    def _speed(self, name: str, size: int) -> Spread | None:
        """Samples per second at a size, the intervals of all its trials taken together."""
        answer = self._answer(name)
        if answer is None:
            return None
        found = [one for one in ran(answer[0]) if one.batch_size == size]
        again = [one for one in found if one.purpose == "confirm"]
        # Those of the confirmation ran one after the other in a warm process.
        return pooled(again or found, "samples_per_s")

    def _note(self, name: str, **changes: object) -> None:
        self._runs[name] = msgspec.structs.replace(self._runs[name], **changes)

    def _outcome(self) -> Outcome:
        answers = {}
        for name, one in self._runs.items():
            answer = self._answer(one.folder) if one.folder else self._answer(name)
            if answer is not None:
                answers[name] = answer
        return Outcome(record=self._record(), folder=self._folder, answers=answers)

    def _record(self) -> DevicesRecord:
        return DevicesRecord(
            state=self._state,  # type: ignore[arg-type]
            started_at=self._started_at,
            command=("batchadvisor", *sys.argv[1:]),
            devices=tuple(self._runs.values()),
        )

    def _save(self) -> None:
        data = msgspec.json.format(msgspec.json.encode(self._record()), indent=1)
        try:
            write_whole(self._folder / DEVICES, data)
        except OSError as error:
            what = f"cannot write into {self._folder}: {error.strerror or error}."
            raise RunError(
                what, "Free some space; each device's own record has what it measured."
            ) from error

    def _interrupt(self, number: signal.Signals) -> None:
        for child in self._children.values():
            if child.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    child.send_signal(number)
        for name, child in self._children.items():
            with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
                child.wait(END_S)
            if name in self._runs and not self._runs[name].folder:
                self._note(name, folder=name, exit_code=child.returncode)

    def _kill(self) -> None:
        for child in self._children.values():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
