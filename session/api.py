"""The two functions of the package: `run` a script, `probe` a live function.

They take what the command's options take, in plain units, and return the record, which a notebook
shows as the HTML report.
"""

from __future__ import annotations

import html
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ..errors import InterruptedRunError, UsageError
from ..records import Advice, GoalKind, RunRecord
from .live_function import LiveStep
from .recording.store import read_record
from .setup.checked_options import PYTHON, checked_options
from .setup.goals import goal_from
from .setup.options import RunOptions

FRAME_PX = 760
"""Height of the report inside a notebook; it scrolls."""


class ProbedRun(RunRecord, frozen=True, kw_only=True):
    """The record of a run, with the folder that it stands in.

    Attributes:
        folder: holds record.json, samples.jsonl, script.log and traces.
    """

    folder: str

    @property
    def advice(self) -> Advice:
        """The advice from the record under its goal."""
        from ..advisor.advise import advise

        return advise(self)

    @property
    def batch_size(self) -> int | None:
        """The recommended size, `None` where there is none."""
        chosen = self.advice.recommended
        return None if chosen is None else chosen.batch_size

    def __repr__(self) -> str:
        from .answer import answer_text

        return answer_text(self, self.advice, Path(self.folder), width=100, color=False)

    def _repr_html_(self) -> str:
        """The report in a frame of its own, so that its style and the notebook's stay apart."""
        from .report import rendered, report_of

        folder = Path(self.folder)
        page = rendered(report_of(self, folder), "HTML", (self, folder))
        headline = html.escape(self.advice.headline)
        return (
            f"<p><strong>{headline}</strong></p>"
            f'<iframe sandbox="allow-scripts" srcdoc="{html.escape(page)}" '
            f'style="width: 100%; height: {FRAME_PX}px; border: 1px solid #ccc"></iframe>'
        )


def run(
    script: str | os.PathLike[str],
    *arguments: str,
    module: bool = False,
    template: bool = False,
    setting: str | None = None,
    workload: bool = False,
    goal: GoalKind = "knee",
    budget_s: float = 120.0,
    sizes: Sequence[int] = (),
    start: int | None = None,
    max_batch: int | None = None,
    multiple_of: int = 1,
    margin: float = 0.05,
    tolerance: float = 0.05,
    precision: float | None = None,
    keep_effective_batch: bool = False,
    worst_case: bool = False,
    profile: bool = True,
    profile_schedule: Sequence[int] | None = None,
    stacks: bool = False,
    device: str = "auto",
    memory_limit_bytes: int | None = None,
    loader: int | None = None,
    timeout_s: float = 60.0,
    output: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
    quiet: bool = False,
) -> ProbedRun:
    """Probes a training script, as `batchadvisor run SCRIPT ARGUMENTS` does, on one device.

    Several devices and several ranks are started from the command line.

    Args:
        script: path of the script; name of the module with `module`; FILE.py[:NAME] with
            `workload`.
        arguments: the script's own; `{batch_size}` in one starts it once for each size.
        setting: `NAME={batch_size}`: the number in the script that sets its size.
        budget_s: seconds for all trials.
        margin, tolerance: shares, 0..1.
        precision: half-width of a step time's interval, as a share of it, at which timing stops;
            0.05 on a CPU and 0.02 elsewhere if not given.
        worst_case: begin every trial with the longest samples.
        profile_schedule: wait, warm-up and active steps of the profiled window; (0, 1, 3) if not
            given.
        stacks: record Python stacks in the traces.
        memory_limit_bytes: what the script may use on the device.
        timeout_s: seconds of silence that count as a hang.

    Raises:
        UsageError: it cannot work as asked for.
        RunError: the run failed; ScriptError carries the script's traceback.
        InterruptedRunError: interrupted; what was measured is in the record on disk.
    """
    given = dict(locals())
    wanted = goal_from(
        {
            "kind": goal,
            "budget_s": budget_s,
            "sizes": sizes,
            "start": start,
            "max_batch": max_batch,
            "multiple_of": multiple_of,
            "margin": margin,
            "tolerance": tolerance,
            "precision": precision,
            "keep_effective_batch": keep_effective_batch,
            "worst_case": worst_case,
            "profile": profile,
        }
    )
    if "," in device:
        raise UsageError(
            f"device={device!r} names several devices; this function takes one.",
            "Name one, or use the command line for several.",
        )
    words = (os.fspath(script), *map(str, arguments))
    options = checked_options(
        PYTHON,
        script=words[0],
        arguments=words[1:],
        module=module,
        goal=wanted,
        device=device,
        memory_limit_bytes=memory_limit_bytes,
        output=output,
        resume=resume,
        loader=loader,
        timeout_s=timeout_s,
        profile_schedule=profile_schedule,
        stacks=stacks,
        template=template,
        setting=setting,
        door="workload" if workload else "loader",
        command=("batchadvisor", "run", *_as_options(given), *words),
        quiet=quiet,
    )
    return probed(options)


_OPTION_OF = {
    "budget_s": "--budget",
    "margin": "--memory-margin",
    "memory_limit_bytes": "--memory-limit",
    "timeout_s": "--timeout",
    "setting": "--set",
    "module": "-m",
}
"""Options of the command that are not called like the parameters of `run`."""


def _as_options(given: dict[str, Any]) -> list[str]:
    """What was given to `run`, as options of the command that does the same."""
    words = []
    for name, parameter in inspect.signature(run).parameters.items():
        value = given[name]
        if isinstance(value, Iterable) and not isinstance(value, str):
            value = tuple(value)
        if parameter.kind is not parameter.KEYWORD_ONLY or value in (parameter.default, None):
            continue
        option = _OPTION_OF.get(name, f"--{name.replace('_', '-')}")
        if isinstance(value, bool):
            words.append(option if value else f"--no-{name}")
        elif isinstance(value, tuple):
            words += [option, ",".join(map(str, value))]
        else:
            seconds = name.endswith("_s") and isinstance(value, (int, float))
            words += [option, f"{value:g}s" if seconds else str(value)]
    return words


def probe(
    step: Callable[[int], Any] | Any,
    *,
    batch_size: int | None = None,
    num_samples: int | None = None,
    goal: GoalKind = "knee",
    budget_s: float = 120.0,
    sizes: Sequence[int] = (),
    start: int | None = None,
    max_batch: int | None = None,
    multiple_of: int = 1,
    margin: float = 0.05,
    tolerance: float = 0.05,
    precision: float | None = None,
    profile: bool = True,
    profile_schedule: Sequence[int] | None = None,
    stacks: bool = False,
    memory_limit_bytes: int | None = None,
    output: str | os.PathLike[str] | None = None,
    quiet: bool = False,
) -> ProbedRun:
    """Probes a live function, in this process: `step(batch_size)` makes one training step.

    A function that returns another one is called once for each size, and what it returned makes
    the steps. The steps are real: parameters change. Nothing shields this process from a crash;
    `memory_limit_bytes` bounds what is tried, and is not enforced.

    Args:
        batch_size: the size in use now, to compare with.
        num_samples: samples of an epoch, for what the last batch does.
        profile_schedule, stacks: as in `run`.

    Raises:
        UsageError: it takes something else than a batch size.
        ScriptError: it raised at its own size.
        InterruptedRunError: interrupted; what was measured is in the record on disk.
    """
    check_numbers(batch_size=batch_size, num_samples=num_samples)
    wanted = goal_from(
        {
            "kind": goal,
            "budget_s": budget_s,
            "sizes": sizes,
            "start": start,
            "max_batch": max_batch,
            "multiple_of": multiple_of,
            "margin": margin,
            "tolerance": tolerance,
            "precision": precision,
            "profile": profile,
        }
    )
    name = getattr(step, "__name__", "step").strip("<>")
    options = checked_options(
        PYTHON,
        script=name,
        goal=wanted,
        memory_limit_bytes=memory_limit_bytes,
        output=output,
        profile_schedule=profile_schedule,
        stacks=stacks,
        command=("batchadvisor.probe", name),
        door="live",
        live=LiveStep(step, batch_size, num_samples),
        quiet=quiet,
    )
    return probed(options)


def check_numbers(**numbers: int | None) -> None:
    """Refuses anything else than counts.

    Raises:
        UsageError: one is none.
    """
    for name, value in numbers.items():
        if value is not None and (type(value) is not int or value < 1):
            raise UsageError(f"{name}={value!r} is not a whole number above 0.", "Give one.")


def probed(options: RunOptions) -> ProbedRun:
    """The record of a run as Python gets it.

    Raises:
        BatchAdvisorError: it failed, or was interrupted.
    """
    from . import run as session

    result = session.run(options, _display(options))
    sys.stderr.flush()
    if result.record.state == "interrupted":
        num_trials = len(result.record.trials)
        raise InterruptedRunError(
            f"interrupted after {num_trials} trial{'' if num_trials == 1 else 's'}; what was "
            "measured is in "
            f"{result.folder}.",
            "Read it with batchadvisor advise, or continue it with resume=."
            if not options.traits.in_this_process
            else "Read it with batchadvisor advise.",
        )
    if result.error is not None:
        raise result.error
    return ProbedRun(**msgspec.structs.asdict(result.record), folder=os.fspath(result.folder))


def _display(options: RunOptions) -> Any:
    """Progress as the command shows it; one line a trial where there is no real terminal."""
    from rich.console import Console

    from ..reports.terminal.progress import NullDisplay, ProgressDisplay

    if options.quiet:
        return NullDisplay()
    spent_s = read_record(options.resume).search_s if options.resume is not None else 0.0
    # Jupyter's environment asks for colours, and its streams cannot move a cursor.
    console = Console(
        stderr=True,
        highlight=False,
        force_jupyter=False,
        force_terminal=None if sys.stderr.isatty() else False,
    )
    return ProgressDisplay(options.goal.budget_s, spent_s=spent_s, console=console)
