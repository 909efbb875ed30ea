"""The answer as text or JSON: hands the record and the advice to the renderers."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ..advisor.advise import advise
from ..advisor.gpu_memory.caching_allocator import MOST_CONTEXT_BYTES
from ..advisor.gpu_memory.mig import fitting_slice
from ..advisor.search.next_trial import expected
from ..probes.distributed.ranks import MPIRUN, SELF_STARTED, SRUN
from ..records import Advice, DeviceInfo, Discovery, FileTouched, Goal, GoalKind, RunRecord
from ..reports.words.wording import clean
from .features import json_of_features, remedies_offered, with_features
from .recording.store import LOG, MEMORY_PAGE, RECORD, SAMPLES, TRACES
from .setup.options_as_typed import options_as_typed
from .setup.wrapped import launcher_words
from .workers.launcher import OPTION

LONGER_BUDGET = 4.0
"""A budget that was too small for an answer is to be so many times as large, or the default."""
GOAL_OPTIONS = {"kind": "--goal", "margin": "--memory-margin", "tolerance": "--tolerance"}
"""Fields of a goal that an answer may be asked for anew, and their options."""
LIVE = (("batchadvisor.probe",), ("batchadvisor.find_batch_size",))
"""How commands begin whose function is gone with its process."""
LAUNCHERS = {MPIRUN: ("mpirun", "-np"), SRUN: ("srun", "-n")}
"""How ranks are started again by what started them before."""


def brief_text(
    record: RunRecord,
    advice: Advice,
    folder: Path,
    *,
    width: int,
    color: bool,
    offers: bool = True,
) -> str:
    """The output of `run` and `advise`: one screen.

    Args:
        offers: names the command that tries remedies, where some can be tried.
    """
    from ..reports.builder.text import build_text
    from ..reports.terminal.brief import render

    return render(
        build_text(record, advice),
        everything=whole_command(record, advice, folder),
        next_command=next_command(record, advice, folder),
        try_command=try_command(record, advice, folder) if offers else "",
        width=width,
        color=color,
        encoding=sys.stdout.encoding or "ascii",
    )


def answer_text(record: RunRecord, advice: Advice, folder: Path, *, width: int, color: bool) -> str:
    """The output of `show`, and of `run` and `advise` with `--verbose`: all of it."""
    from ..reports.builder.text import build_text
    from ..reports.terminal.answer import render

    traces = folder / TRACES
    files = [("record", str(folder / RECORD))]
    if (folder / SAMPLES).exists():
        files.append(("every step", str(folder / SAMPLES)))
    if (folder / LOG).exists():
        files.append(("script's output", str(folder / LOG)))
    if (folder / MEMORY_PAGE).exists():
        files.append(("where memory goes", str(folder / MEMORY_PAGE)))
    if traces.exists():
        files.append(("traces", str(traces)))
    text = build_text(record, advice)
    return render(
        msgspec.structs.replace(text, report=with_features(text.report, folder)),
        files=files,
        next_command=next_command(record, advice, folder),
        others=[report_command(record, advice, folder)] if record.trials else [],
        width=width,
        color=color,
        encoding=sys.stdout.encoding or "ascii",
    )


def whole_command(record: RunRecord, advice: Advice, folder: Path) -> str:
    """The command that prints all of an answer, be it to another goal than the run's own."""
    asked = _asked(record, advice)
    return f"batchadvisor {f'advise --verbose {asked}' if asked else 'show '}{_quoted(folder)}"


def _quoted(folder: Path) -> str:
    return shlex.quote(str(folder))


def _asked(record: RunRecord, advice: Advice, fields: Sequence[str] = tuple(GOAL_OPTIONS)) -> str:
    """Options, each with a blank behind it, of a goal that is another than the run's own."""
    return "".join(
        f"{GOAL_OPTIONS[field]} {getattr(advice.goal, field)} "
        for field in fields
        if getattr(advice.goal, field) != getattr(record.goal, field)
    )


def next_command(record: RunRecord, advice: Advice, folder: Path) -> str:
    """The command that a user is likely to want now."""
    # A live function is gone with its process: no command goes on with it.
    live = record.observed is not None or record.command[:1] in LIVE
    if record.state == "interrupted" and not live:
        return _resume_command(record, folder)
    if _wants_time(record, advice) and not live:
        longer_s = max(Goal().budget_s, LONGER_BUDGET * record.goal.budget_s)
        # Steps may be so long that even this has no time for a second size.
        longer_s = max(longer_s, expected(record).enough_s or 0.0)
        return _resume_command(record, folder, budget_s=math.ceil(longer_s))
    if (folder / TRACES).exists():
        return f"batchadvisor view {shlex.quote(str(folder))}"
    other: GoalKind = "memory" if advice.goal.kind != "memory" else "knee"
    goal = msgspec.structs.replace(advice.goal, kind=other)
    if advice.recommended is None and advise(record, goal).recommended is None:
        return ""  # no goal has an answer: the findings say what to do
    asked = _asked(record, advice, ("margin", "tolerance"))
    return f"batchadvisor advise --goal {other} {asked}{_quoted(folder)}"


def try_command(record: RunRecord, advice: Advice, folder: Path) -> str:
    """The command that tries what helps against the verdict; empty where nothing can be tried."""
    names = remedies_offered(record, advice, folder)
    return _resume_command(record, folder, more=("--try", names)) if names else ""


def _wants_time(record: RunRecord, advice: Advice) -> bool:
    """Whether the budget ended the run's own search before an answer, or before the best one."""
    if advice.recommended is None:
        return advice.standing == "not compared"
    cut_short = any(finding.rule == "search.cut_short" for finding in advice.findings)
    return cut_short and advice.goal.kind == record.goal.kind


def _resume_command(
    record: RunRecord, folder: Path, budget_s: float | None = None, more: Sequence[str] = ()
) -> str:
    """The command as it was typed, with its goal and its door, going on in the folder.

    Args:
        budget_s: of both parts together, where it is to be larger than what was typed.
        more: options beside those that were typed.
    """
    script = (record.script.path, *record.script.arguments)
    again = ("--output", "--resume", "--json", *(["--budget"] if budget_s else []))
    more = [*more, *(["--budget", f"{budget_s:g}s"] if budget_s else [])]
    launcher = launcher_words(record.command, len(script))
    if launcher:
        script = (*launcher, *script)
    typed = options_as_typed(record.command, len(script), leave_out=again)
    if launcher:
        return shlex.join(["batchadvisor", "run", "--resume", str(folder), *more, *typed, *script])
    return shlex.join([*_start(record, typed), "--resume", str(folder), *more, *typed, *script])


def _start(record: RunRecord, typed: list[str]) -> list[str]:
    """The command up to its options, with as many ranks as there were, however they came to be.

    Ranks on several hosts are started by what started them before; the command is that of each.
    """
    job = record.distribution
    run = ["batchadvisor", "run"]
    if job is None or not job.ranks or job.launcher == SELF_STARTED or OPTION in typed:
        return run
    ranks = str(job.world_size)
    if job.launcher in LAUNCHERS:
        return [*LAUNCHERS[job.launcher], ranks, *run]
    one_host = len({rank.host for rank in job.ranks}) == 1
    return [*run, OPTION, ranks] if one_host else run


def report_command(record: RunRecord, advice: Advice, folder: Path) -> str:
    """The command that writes the answer as one file for others."""
    return f"batchadvisor report {_asked(record, advice)}{_quoted(folder)} -o report.html"


def answer_json(record: RunRecord, advice: Advice, folder: Path) -> str:
    """The advice, the record and where it stands, for machines."""
    data = {"record_path": str(folder / RECORD), "advice": advice, "record": record}
    data |= json_of_features(folder)
    return msgspec.json.format(msgspec.json.encode(data), indent=2).decode()


def discovery_text(
    discovery: Discovery, device: DeviceInfo, files: Sequence[FileTouched] = ()
) -> str:
    """The output of `--dry-run`."""
    from ..reports.terminal.discovery import render

    return render(discovery, device, files, encoding=sys.stdout.encoding or "ascii")


def touched_text(files: Sequence[FileTouched]) -> str:
    """What the script itself did to files, where the run has no answer."""
    from ..reports.terminal.touched import render

    return render(files, encoding=sys.stderr.encoding or "ascii")


def discovery_json(
    discovery: Discovery, device: DeviceInfo, files: Sequence[FileTouched] = ()
) -> str:
    """The output of `--dry-run --json`."""
    data = {"discovery": discovery, "device": device, "files": files}
    return msgspec.json.format(msgspec.json.encode(data), indent=2).decode()


def answer_line(record: RunRecord, advice: Advice) -> str:
    """Says in one line what to use, what limits the step, and the GPU slice that would do."""
    limit = advice.verdict.limit
    words = [advice.headline.rstrip(".")]
    if limit != "cannot tell":
        words.append(f"limit: {limit}")
    part = slice_of(record, advice)
    if part is not None:
        words.append(f"fits {part} (memory alone; fewer cores make it slower)")
    return clean(f"batchadvisor: {'; '.join(words)}")


def slice_of(record: RunRecord, advice: Advice) -> str | None:
    """The smallest MIG slice of the GPU that holds the recommended size; `None` where unknown."""
    device, choice = record.device, advice.recommended
    if device is None or device.kind != "cuda" or choice is None:
        return None
    trials = [trial for trial in record.trials if trial.batch_size == choice.batch_size]
    needs = [
        max(trial.memory.peak_bytes + MOST_CONTEXT_BYTES, trial.memory.process_bytes or 0)
        for trial in trials
        if trial.memory is not None
    ]
    return fitting_slice(device.name, device.total_bytes, max(needs)) if needs else None
