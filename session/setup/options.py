"""Options of `run`, checked before anything starts."""

from __future__ import annotations

import ast
import hashlib
import shlex
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from ...advisor.measured.energy import energy_measured, why_not
from ...advisor.measured.measurements import Measurements
from ...advisor.measured.sizes import effective_batch
from ...errors import UsageError
from ...probes.doors.declared import path_of
from ...probes.source.named_size import Script, SizePlace
from ...probes.source.script_options import source_file
from ...records import Door, DoorTraits, Goal, RunRecord, traits_of
from ..live_function import LiveStep

DEFAULT_SCHEDULE = (0, 1, 3)
"""Wait, warm-up and active steps of a profiled window."""


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one run, however they were given: made by `checked_options`.

    Attributes:
        script: path of the script, or name of the module.
        budget_share: part that the goal's budget is of the one that was typed, where several runs
            of a command share that; a proposed budget is for the whole command.
        device: `auto`, or as torch names it; `cuda:N` counts those that the user's variables
            leave visible, `cuda:all` keeps them all.
        memory_limit_bytes: what the script may use on the device.
        output: the run's folder; `None` makes one.
        resume: the folder of a run to go on with.
        loader: ordinal of the loader to steer.
        silence_s: longest time without a sign of life inside a trial.
        profile_schedule: wait, warm-up and active steps of the profiled window.
        door: how sizes reach the script; see records.Door.
        forced: the template was insisted on.
        place: that sets the batch size, where it was found in the script and not typed.
        typed: arguments of the script as typed, where `place` added to them.
        gpus: several GPUs, each for a run of its own, as `--gpus` names them.
        num_ranks: as so many ranks torch's launcher shall start the script.
        launcher: the words of a launcher that shall start it, up to the script.
        command: what was typed, for the record.
        tried: remedies to try after the search, as they were typed.
        dry_run: no size is tried.
        as_json, brief, verbose, quiet, debug: what is shown; `brief` is the short JSON.
        live: a function of this process instead of a script.
        verb: the command that errors name.
    """

    script: str
    arguments: tuple[str, ...] = ()
    module: bool = False
    goal: Goal = Goal()
    budget_share: float = 1.0
    device: str = "auto"
    memory_limit_bytes: int | None = None
    output: Path | None = None
    resume: Path | None = None
    loader: int | None = None
    silence_s: float = 60.0
    profile_schedule: tuple[int, int, int] = DEFAULT_SCHEDULE
    with_stack: bool = False
    command: tuple[str, ...] = ()
    door: Door = "loader"
    forced: bool = False
    place: SizePlace | None = None
    typed: tuple[str, ...] | None = None
    gpus: str | None = None
    num_ranks: int | None = None
    launcher: tuple[str, ...] = ()
    tried: str = ""
    dry_run: bool = False
    as_json: bool = False
    brief: bool = False
    verbose: bool = False
    quiet: bool = False
    debug: bool = False
    live: LiveStep | None = None
    verb: Literal["run", "estimate"] = "run"

    @property
    def traits(self) -> DoorTraits:
        """Traits of the door."""
        return traits_of(self.door)

    @property
    def script_words(self) -> tuple[str, ...]:
        """The script and its arguments, as the end of a command."""
        return (self.script, *self.arguments)

    @property
    def typed_words(self) -> tuple[str, ...]:
        """The script and its arguments as typed, without the words through which sizes go in."""
        return (self.script, *(self.arguments if self.typed is None else self.typed))

    @property
    def known_script(self) -> Script:
        """The script as what finds its size takes it."""
        return Script(self.script, self.arguments, self.module)

    def through(self, place: SizePlace, *, forced: bool = False) -> RunOptions:
        """Returns the options with the place through which sizes reach the script.

        Args:
            forced: although a loader could be steered.
        """
        arguments = place.arguments or self.arguments
        return msgspec.structs.replace(
            self,
            door="template",
            arguments=arguments,
            place=place,
            typed=self.typed_words[1:],
            forced=forced or self.forced,
        )

    @property
    def script_path(self) -> str:
        """The script without the name of a function in it."""
        return path_of(self.script) if self.traits.declares_workload else self.script


def check_script(script: str) -> None:
    """Fails early on what cannot be a script.

    Raises:
        UsageError: no name, no file, a folder, not Python.
    """
    if not script:
        raise UsageError("the script's name is empty.", "Name the script.")
    path = Path(script)
    try:
        is_folder = stat.S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UsageError(f"there is no file {script}.", "Check the path.") from error
    except (ValueError, OSError) as error:
        msg = f"cannot read {script}: {getattr(error, 'strerror', None) or error}."
        raise UsageError(msg, "Check the path.") from error
    if is_folder:
        inner = path / "__main__.py"
        remedy = f"Name the script in it{', for example ' + str(inner) if inner.exists() else ''}."
        raise UsageError(f"{script} is a folder, not a script.", remedy)
    try:
        ast.parse(path.read_bytes(), filename=script)
    except SyntaxError as error:
        where = script if error.lineno is None else f"{script}:{error.lineno}"
        msg = f"{where}: {error.msg}: the script is not valid Python."
        raise UsageError(msg, "Fix the script; `python` would reject it too.") from error
    except OSError as error:
        msg = f"cannot read {script}: {error.strerror or error}."
        raise UsageError(msg, "Make it readable, or name another script.") from error
    except ValueError as error:
        msg = f"cannot read {script}: {error}."
        raise UsageError(msg, "Give a Python source file.") from error


def check_same_script(options: RunOptions, resumed: RunRecord) -> None:
    """What was measured of one script says nothing about another, nor about other arguments.

    Raises:
        UsageError: the record is of another script, of another text of it, or of other arguments.
    """
    run = f"{options.resume} is a run of {resumed.script.path}"
    own = digest_of(options)
    if None in (own, resumed.script.digest):
        same = Path(resumed.script.path).resolve() == Path(options.script).resolve()
    else:
        same = Path(resumed.script.path).name == Path(options.script).name
        if same and own != resumed.script.digest:
            msg = f"{run}, which has changed since."
            raise UsageError(
                msg, "Resume it with the script as it was, or start a new run without --resume."
            )
    if not same:
        raise UsageError(f"{run}.", "Resume it with that script.")
    if resumed.script.arguments != options.typed_words[1:]:
        typed = shlex.join(resumed.script.arguments) or "no arguments"
        raise UsageError(f"{run} with {typed}.", "Resume it with the same arguments.")


def digest_of(options: RunOptions) -> str | None:
    """Digest of the script's text; a module is looked for below the working folder."""
    try:
        text = Path(source_file(options.script_path, module=options.module)).read_bytes()
    except OSError:
        return None
    return hashlib.sha256(text).hexdigest()[:16]


def check_goal(goal: Goal) -> None:
    """Fails on options that contradict each other.

    Raises:
        UsageError: they do.
    """
    if goal.budget_s <= 0:
        raise UsageError(
            "a budget of 0 leaves no time for any trial.", "Give --budget a few seconds."
        )
    if goal.sizes and goal.start:
        raise _beside_sizes("--start")
    if goal.sizes and goal.max_batch:
        raise _beside_sizes("--max-batch")
    if goal.sizes and goal.keep_effective_batch:
        raise _beside_sizes("--keep-effective-batch")
    step = goal.multiple_of
    if goal.max_batch and goal.max_batch < step:
        msg = f"--max-batch {goal.max_batch} leaves no multiple of {step}."
        raise UsageError(msg, "Raise it, or lower --multiple-of.")
    for size in (*goal.sizes, goal.start or step):
        if size % step:
            raise UsageError(
                f"{size} is no multiple of {step}, which --multiple-of asks for.",
                f"Take {size // step * step or step} or {-(-size // step) * step}.",
            )
    if goal.start and goal.max_batch and goal.start > goal.max_batch:
        msg = f"--start {goal.start} is above --max-batch {goal.max_batch}."
        raise UsageError(msg, "Lower --start or raise --max-batch.")


def check_against_script(record: RunRecord) -> None:
    """Fails where no size of the script that was found is one that the options leave.

    Raises:
        UsageError: there is none.
    """
    measurements = Measurements.of(record)
    goal, script, step = measurements.goal, measurements.script, measurements.goal.multiple_of
    if step == 1 or goal.sizes:
        return
    if script.num_units is not None and 0 < script.num_units < step:
        unit = record.discovery.axis if record.discovery is not None else "samples"
        what = f"the data has {script.num_units} {unit}, less than the {step} of --multiple-of."
        raise UsageError(what, "Lower --multiple-of.")
    if goal.keep_effective_batch and script.own_size is not None:
        whole = effective_batch(measurements)
        if whole % step:
            what = f"--keep-effective-batch: no divisor of {whole} is a multiple of {step}."
            raise UsageError(what, "Change --multiple-of, or leave one of the two out.")


def check_energy(record: RunRecord, goal: Goal) -> None:
    """Fails where energy decides and none was measured.

    Raises:
        UsageError: it was not.
    """
    measurements = Measurements.of(record)
    if goal.kind == "energy" and not energy_measured(measurements):
        msg = f"--goal energy cannot be answered: {why_not(measurements)}."
        raise UsageError(msg, "Use --goal throughput or knee.")


def check_energy_device(device: str, goal: Goal) -> None:
    """Fails before anything is measured where the device tells no energy.

    Args:
        device: as `choose_target` of session/setup/target.py chose it.

    Raises:
        UsageError: it does not.
    """
    if goal.kind == "energy" and not device.startswith("cuda"):
        msg = "--goal energy needs the energy counters of an NVIDIA GPU, and this run uses none."
        raise UsageError(msg, "Use --goal knee or throughput.")


def _beside_sizes(option: str) -> UsageError:
    return UsageError(f"--sizes and {option} contradict each other.", "Leave one of them out.")


def is_schedule(steps: Sequence[int]) -> bool:
    """Whether these are wait, warm-up and active steps of a profiled window.

    >>> is_schedule((0, 1, 3)), is_schedule((0, 1, 0)), is_schedule((0, 1))
    (True, False, False)
    """
    return len(steps) == 3 and min(steps) >= 0 and steps[2] >= 1 and sum(steps) <= 100


def run_folder(script: str, stamp: str) -> Path:
    """The default folder for a run: `batchadvisor-runs/NAME-STAMP` below the working folder."""
    name = Path(script).stem or "run"
    base = Path("batchadvisor-runs") / f"{name}-{stamp}"
    folder = base
    count = 1
    while folder.exists():
        count += 1
        folder = base.with_name(f"{base.name}-{count}")
    return folder
