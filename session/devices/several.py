"""`run --gpus` and `run --device cpu:1,cpu:1`: one whole run a device, each in its own process.

The first device of each model is probed in full, all of them at the same time, since they share
the host. Then every device of a model that occurs more than once runs the size found, again at
the same time; one that is weaker than its twin is probed in full as well.
"""

from __future__ import annotations

import contextlib
import math
import shlex
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ...advisor.advise import advise
from ...advisor.split.twins import representatives
from ...errors import INTERRUPTED_BY, BatchAdvisorError, RunError, UsageError
from ...probes.devices import host
from ...records import DeviceRun, Spread
from ..answer import next_command
from ..display import Display
from ..pages import terminal_text
from ..recording.store import DEVICES, read_record
from ..setup.device_choice import Device, chosen_gpus, logical_devices
from ..setup.options import (
    DEFAULT_SCHEDULE,
    RunOptions,
    check_energy_device,
    check_goal,
    check_script,
    run_folder,
)
from ..setup.options_as_typed import options_as_typed
from .engine import Probe
from .fleet import Fleet
from .local_engine import LocalEngine
from .outcome import Outcome, answer_of, speed_at, twin_check

FOR_ONE_RUN = {
    "--nproc-per-node": "num_ranks",
    "--resume": "resume",
    "--dry-run": "dry_run",
}
"""Abilities of a run on one device alone, by the option that asks for each."""
CHECK_SHARE, WEAK_SHARE = 1 / 6, 1 / 3
"""Shares of the budget for devices of one model: for the check of twins, and for the weak ones
among them. Phases follow each other, and a budget bounds all of them."""


def run(options: RunOptions, display: Display) -> Outcome:
    """Probes the script on several devices.

    Raises:
        UsageError: the options contradict each other, or there are no such devices.
        RunError: nothing was measured.
    """
    if options.gpus is not None and options.device != "auto":
        msg = "--gpus and --device contradict each other."
        raise UsageError(msg, "Leave one of them out.")
    for option, field in FOR_ONE_RUN.items():
        if getattr(options, field):
            msg = f"{option} is for one run, and several devices were named."
            raise UsageError(msg, f"Leave {option} out, or name one device.")
    check_goal(options.goal)
    if not options.module:
        check_script(options.script_path)
    devices = (
        chosen_gpus(options.gpus) if options.gpus is not None else logical_devices(options.device)
    )
    for device in devices:
        check_energy_device(device.option, options.goal)
    folder = options.output or run_folder(options.script, time.strftime("%Y%m%d-%H%M%S"))
    display.start()
    try:
        return run_devices(devices, options, folder, display)
    finally:
        display.close()


def answer(
    outcome: Outcome, *, width: int, color: bool, as_json: bool, then: Sequence[str] = ()
) -> str:
    """The table, or everything as JSON.

    Args:
        then: the commands to name at the end, instead of those that look at one device.
    """
    split = outcome.split
    if as_json:
        known = not isinstance(split, str)
        data = {
            "devices_path": str(outcome.folder / DEVICES),
            "devices": outcome.record,
            "answers": {
                name: {"record": record, "advice": advice}
                for name, (record, advice) in outcome.answers.items()
            },
            "split": split if known else None,
            "unavailable": {} if known else {"split": split},
        }
        return msgspec.json.format(msgspec.json.encode(data), indent=2).decode()
    from ...reports.builder.devices.text import build_devices_text, first_folder

    folder = str(outcome.folder)
    first = first_folder(outcome.record, outcome.answers)
    commands = list(then) or _to_resume(outcome)
    if first is not None and not commands:
        commands = [f"batchadvisor advise {shlex.quote(f'{folder}/{first}')}"]
    return terminal_text(
        build_devices_text(outcome.record, outcome.answers, split, folder=folder),
        files=[("", folder)],
        next_command=commands[0] if commands else "",
        others=commands[1:],
        width=width,
        color=color,
    )


def _to_resume(outcome: Outcome) -> list[str]:
    """The commands that go on with what was interrupted, a device each."""
    commands = []
    for device in outcome.record.devices:
        if device.exit_code in INTERRUPTED_BY and device.twin_of is None and device.folder:
            folder = outcome.folder / device.folder
            with contextlib.suppress(BatchAdvisorError):
                record = read_record(folder)
                if record.state == "interrupted":
                    commands.append(next_command(record, advise(record), folder))
    return commands


def run_devices(
    devices: Sequence[Device], options: RunOptions, folder: Path, display: Display
) -> Outcome:
    """Probes all of them.

    Args:
        folder: of all runs, empty or to be made.

    Raises:
        RunError: nothing was measured on any device.
        UsageError: the folder holds a run already, or cannot be written.
    """
    runs = [DeviceRun(device=device.name, model=device.model) for device in devices]
    fleet = Fleet(LocalEngine(), runs, folder, display, command=options.command)
    return _Run(devices, options, folder, fleet, display).all()


class _Run:
    def __init__(
        self,
        devices: Sequence[Device],
        options: RunOptions,
        folder: Path,
        fleet: Fleet,
        display: Display,
    ) -> None:
        self._devices = list(devices)
        self._models = [device.model for device in devices]
        self._options = options
        self._folder = folder
        self._fleet = fleet
        self._display = display
        self._until_s = time.monotonic() + options.goal.budget_s

    def all(self) -> Outcome:
        """Probes, checks the twins, probes the weak ones."""
        return self._fleet.carry_out(self._phases, self._nothing)

    # inside ----------------------------------------------------------------------------------

    def _phases(self) -> None:
        budget_s = self._options.goal.budget_s
        first = list(representatives(self._models))
        later = CHECK_SHARE + WEAK_SHARE if len(first) < len(self._models) else 0.0
        self._probe(first, budget_s * (1 - later) if later else None)
        weak = self._check_twins()
        if weak:
            names = ", ".join(self._devices[place].name for place in weak)
            self._display.note(f"{names}: probing in full")
            self._probe(weak, self._left_s(WEAK_SHARE))

    def _nothing(self) -> RunError:
        said = next((run.error for run in self._fleet.runs.values() if run.error), "")
        own_words = said.startswith("Error: ")  # with what to do
        text = said.removeprefix("Error: ").rstrip(".")
        remedy = "" if own_words else f"See the logs in {self._folder}."
        return RunError(f"no device could be measured. {text}.", remedy)

    def _left_s(self, share: float) -> float:
        """Seconds for the next phase: what is left, and its share of the budget at least."""
        return max(self._until_s - time.monotonic(), share * self._options.goal.budget_s)

    def _probe(self, places: Sequence[int], budget_s: float | None) -> None:
        self._fleet.probe([self._probe_of(place, budget_s=budget_s) for place in places])

    def _check_twins(self) -> list[int]:
        """Runs the size found on all devices of a model at once; the places of weak ones."""
        weak: list[int] = []
        for model in dict.fromkeys(self._models):
            places = [place for place, other in enumerate(self._models) if other == model]
            first = self._devices[places[0]].name
            answer = answer_of(self._folder / first)
            if self._fleet.runs[first].exit_code == UsageError.exit_code:
                continue  # the same command is wrong on every device
            if len(places) < 2 or answer is None or answer[1].recommended is None:
                weak += places[1:]  # nothing to check against: each for itself
                continue
            size = answer[1].recommended.batch_size
            self._display.note(f"batch {size} on {len(places)} devices at the same time: {model}")
            check_s = min(CHECK_S, CHECK_SHARE * self._options.goal.budget_s)
            self._fleet.probe([self._probe_of(place, "-check", size, check_s) for place in places])
            speeds = [self._speed(f"{self._devices[place].name}-check", size) for place in places]
            for place, speed in zip(places[1:], speeds[1:], strict=True):
                name = self._devices[place].name
                check = twin_check(first, size, speed, speeds[0], f"{name}-check")
                self._fleet.note(name, twin_of=first, folder=first, check=check)
                if check.verdict in ("weak", "strong"):
                    self._display.note(f"{name}: {check.verdict}er than its twin {first}")
                if check.verdict in ("weak", "strong") or speed is None:
                    weak.append(place)
            self._fleet.save()
        return weak

    def _probe_of(
        self,
        place: int,
        suffix: str = "",
        check_size: int | None = None,
        budget_s: float | None = None,
    ) -> Probe:
        device = self._devices[place]
        name = f"{device.name}{suffix}"
        options = device_options(
            self._options,
            device,
            self._folder / name,
            memory_limit_bytes=self._share_bytes(device),
            check_size=check_size,
            budget_s=budget_s,
        )
        return Probe(
            name=name,
            request=device.option,
            options=options,
            log=self._folder / f"{name}.log",
            cores=device.cores,
            time_limit_s=math.inf,  # it has a budget
        )

    def _share_bytes(self, device: Device) -> int | None:
        """Logical CPU devices share one memory; each may use its part, if no limit was given."""
        free = host.available_bytes()
        if not device.cores or self._options.memory_limit_bytes is not None or free is None:
            return None
        return free[0] // len(self._devices)

    def _speed(self, name: str, size: int) -> Spread | None:
        answer = answer_of(self._folder / name)
        return None if answer is None else speed_at(answer[0], size)


# The options of one device's own run, made of those of all.

OF_ALL_DEVICES = ("--gpus", "--device", "--output", "--json")
"""Options that were typed for all devices and that each run gets otherwise."""
UNCHECKED = (
    *("--sizes", "--start", "--max-batch", "--budget", "--profile-schedule"),
    *("--keep-effective-batch", "--stacks", "--no-profile"),
)
"""The user's options that a check of twins does not take: it runs one size, for a short time."""
CHECK_S = 30.0
"""A check takes no longer, whatever the budget."""


def device_options(
    options: RunOptions,
    device: Device,
    output: Path,
    *,
    memory_limit_bytes: int | None = None,
    check_size: int | None = None,
    budget_s: float | None = None,
) -> RunOptions:
    """The options of one device's own run, with a command that would start it.

    Args:
        options: of all.
        memory_limit_bytes: the device's part of a memory that several share.
        check_size: the only size, of a check of twins: measured for a short time.
        budget_s: the device's part of a budget that several phases share.

    >>> options = RunOptions(
    ...     script="a.py",
    ...     command=("batchadvisor", "run", "--gpus", "all", "-q", "--start", "8", "a.py"),
    ... )
    >>> gpu = Device(name="cuda-0", option="cuda:0", model="T4")
    >>> " ".join(device_options(options, gpu, Path("out/cuda-0")).command)
    'batchadvisor run -q --start 8 --json --device cuda:0 -o out/cuda-0 a.py'
    >>> check = device_options(options, gpu, Path("out/check"), check_size=32, budget_s=5.0)
    >>> " ".join(check.command[2:8])
    '-q --sizes 32 --no-profile --budget 5s'
    """
    words = options.typed_words
    own: list[str] = []
    if check_size is not None:
        own += ["--sizes", str(check_size), "--no-profile"]
        options = _for_a_check(options, check_size)
    if budget_s is not None:
        own += ["--budget", f"{round(budget_s, 1):g}s"]
        options = msgspec.structs.replace(
            options,
            goal=msgspec.structs.replace(options.goal, budget_s=budget_s),
            budget_share=budget_s / options.goal.budget_s,
        )
    own += ["--json", "--device", device.option, "-o", str(output)]
    if memory_limit_bytes is not None:
        own += ["--memory-limit", str(memory_limit_bytes)]
        options = msgspec.structs.replace(options, memory_limit_bytes=memory_limit_bytes)
    leave_out = (*OF_ALL_DEVICES, *UNCHECKED) if check_size is not None else OF_ALL_DEVICES
    leave_out = leave_out if budget_s is None else (*leave_out, "--budget")
    typed = options_as_typed(options.command, len(words), leave_out=leave_out)
    return msgspec.structs.replace(
        options,
        device=device.option,
        gpus=None,
        output=output,
        as_json=True,
        command=("batchadvisor", "run", *typed, *own, *words),
    )


def _for_a_check(options: RunOptions, size: int) -> RunOptions:
    goal = msgspec.structs.replace(
        options.goal,
        sizes=(size,),
        start=None,
        max_batch=None,
        keep_effective_batch=False,
        profile=False,
    )
    return msgspec.structs.replace(
        options, goal=goal, profile_schedule=DEFAULT_SCHEDULE, with_stack=False
    )
