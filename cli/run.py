"""`batchadvisor run`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from ..errors import UsageError
from .common import INTERRUPTED, goal_of, goal_options, print_answer, terminal
from .types import BYTES, PLACE, SECONDS, SIZE, Schedule, Sizes

if TYPE_CHECKING:
    from ..records import Goal


@click.command(
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
    short_help="Probe a training script and recommend a batch size.",
)
@goal_options
@click.option("--budget", type=SECONDS, default="120s", help="Time for all trials (default 120s).")
@click.option("--max-batch", type=SIZE, help="Never try more.")
@click.option("--start", type=SIZE, help="First size to time (default: the script's own).")
@click.option("--sizes", type=Sizes(), default=(), help="Try exactly these: 32,64,128.")
@click.option(
    "--keep-effective-batch",
    is_flag=True,
    help="Choose a micro-batch and an accumulation that keep samples per optimizer step.",
)
@click.option(
    "--device",
    default="auto",
    help="auto, cuda, cuda:N (of the visible ones), cuda:all, cpu, mps or xpu. cpu:1@0.4 is one "
    "core for 40 % of the time; several such devices by commas.",
)
@click.option(
    "--gpus", help="Probe several visible GPUs at once: all, 0,2, or distinct (one a model)."
)
@click.option(
    "--worst-case",
    is_flag=True,
    help="Begin every trial with the longest samples, where samples differ in length.",
)
@click.option("--memory-limit", type=BYTES, help="What the script may use, for example 8GiB.")
@click.option(
    "--nproc-per-node",
    type=SIZE,
    help="Start SCRIPT as so many ranks on this host, as torchrun does; they run in lock-step.",
)
@click.option("--loader", type=click.IntRange(min=0), help="Steer this loader (see --dry-run).")
@click.option("--dry-run", is_flag=True, help="Say which loader and optimizer were found, stop.")
@click.option("--no-profile", is_flag=True, help="Leave the profiled windows out.")
@click.option(
    "--profile-schedule",
    type=Schedule(),
    default=None,
    help="WAIT,WARMUP,ACTIVE steps of the profiled window (default 0,1,3).",
)
@click.option("--stacks", is_flag=True, help="Record Python stacks in the traces.")
@click.option("-o", "--output", type=PLACE, help="Folder for the run.")
@click.option("--resume", type=PLACE, help="Go on with the run in a folder.")
@click.option(
    "--timeout",
    type=SECONDS,
    default="60s",
    help="Silence inside a trial that counts as a hang (default 60s); ten times that before "
    "the training loop is found.",
)
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
@click.option("-m", "module", is_flag=True, help="SCRIPT is a module, as with python -m.")
@click.option(
    "--template",
    is_flag=True,
    help="One process a size, even where a DataLoader could be steered: SCRIPT's arguments hold "
    "{batch_size}.",
)
@click.option(
    "--workload",
    is_flag=True,
    help="SCRIPT is FILE.py[:NAME], which declares make(batch_size) instead of training.",
)
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(script: str, arguments: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Probe the training script SCRIPT; everything after it is the script's own.

    The script runs unchanged. Its training DataLoader is taken over, short windows are measured
    at growing batch sizes, and the size to use is printed with its evidence.

    A script without a DataLoader is started once for each size: write {batch_size} where its
    arguments take one.
    """
    from ..session import ranks
    from ..session.launch import leave_pid

    _end_like_ctrl_c()
    _check_text([_working_folder(), *sys.argv[1:]])
    if options["gpus"] is not None or "," in options["device"]:
        sys.exit(_on_several_devices(script, arguments, as_json=as_json, options=options))
    rank = ranks.own_rank()
    _check_door(arguments, options, ranks=rank is not None and rank.world_size > 1)
    if options["nproc_per_node"] is not None:
        sys.exit(_launch(script, arguments, options))
    if rank is not None and rank.rank > 0:
        ranks.follow(rank)
        return
    with ranks.lead(rank) as group:
        leave_pid()
        _run(script, arguments, group, as_json=as_json, options=options)


def _run(
    script: str, arguments: tuple[str, ...], group: Any, *, as_json: bool, options: dict[str, Any]
) -> None:
    from ..reports.progress import NullDisplay, ProgressDisplay
    from ..session import run as session
    from ..session.store import read_record

    goal = goal_of(options)
    _check_pairs(options)
    settings = _run_options(script, arguments, goal, options)
    spent_s = 0.0
    if options["resume"] is not None:
        spent_s = read_record(options["resume"]).search_s
    display: Any = (
        NullDisplay() if options["quiet"] else ProgressDisplay(goal.budget_s, spent_s=spent_s)
    )
    if options["dry_run"]:
        from ..session.answer import discovery_json, discovery_text

        shown = discovery_json if as_json else discovery_text
        click.echo(shown(*session.discover(settings, display, group)))
        return
    result = session.run(settings, display, group)
    print_answer(result.record, result.advice, result.folder, as_json=as_json)
    if result.record.state == "interrupted":
        sys.exit(INTERRUPTED)
    if result.error is not None:
        raise result.error
    if result.advice.recommended is None:
        sys.exit(1)


def _on_several_devices(
    script: str, arguments: tuple[str, ...], *, as_json: bool, options: dict[str, Any]
) -> int:
    from ..reports.progress import NullDisplay, ProgressDisplay
    from ..session import several

    goal = goal_of(options)
    _check_pairs(options)
    display: Any = NullDisplay() if options["quiet"] else ProgressDisplay(goal.budget_s)
    outcome = several.run(script, arguments, sys.argv[1:], options, display, goal=goal)
    width, color = terminal()
    click.echo(several.answer(outcome, width=width, color=color, as_json=as_json))
    if outcome.record.state == "interrupted":
        return INTERRUPTED
    return 0 if outcome.recommends else 1


def _launch(script: str, arguments: tuple[str, ...], options: dict[str, Any]) -> int:
    from ..session.launch import launch

    _check_pairs(options)
    ranks = options["nproc_per_node"]
    return launch(script, ranks, arguments, sys.argv[1:], module=options["module"])


def _check_pairs(options: dict[str, Any]) -> None:
    if not options["timeout"]:
        raise UsageError("--timeout 0: every trial would count as a hang.", "Allow some seconds.")
    if options["no_profile"] and (options["stacks"] or options["profile_schedule"]):
        raise UsageError(
            "--no-profile contradicts --stacks and --profile-schedule.", "Leave one of them out."
        )
    if options["resume"] is not None and options["output"] is not None:
        raise UsageError(
            "--resume goes on in its own folder; --output names another.",
            "Leave one of them out.",
        )


def _check_door(arguments: tuple[str, ...], options: dict[str, Any], *, ranks: bool) -> None:
    """Ranks run in lock-step through their DataLoaders; no other door is open to them."""
    from ..probes.placeholder import has_placeholder

    if not ranks and options["nproc_per_node"] is None:
        return
    if options["template"] or options["workload"] or has_placeholder(arguments):
        raise UsageError(
            "several ranks are steered through their DataLoaders; {batch_size}, --template and "
            "--workload take one process.",
            "Leave the ranks out, or the other door.",
        )


def _working_folder() -> str:
    try:
        return os.getcwd()  # noqa: PTH109
    except OSError as error:
        msg = f"the working folder cannot be found: {error.strerror}."
        raise UsageError(msg, "Change to one that exists.") from error


def _check_text(words: list[str]) -> None:
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError as error:
            raise UsageError(
                f"{word!r} is not valid UTF-8, and the record is.", "Rename it."
            ) from error


def _run_options(
    script: str, arguments: tuple[str, ...], goal: Goal, options: dict[str, Any]
) -> Any:
    from ..session.launch import as_typed
    from ..session.options import DEFAULT_SCHEDULE, RunOptions
    from ..session.template import with_door

    settings = RunOptions(
        script=script,
        arguments=tuple(arguments),
        module=options["module"],
        goal=goal,
        device=options["device"],
        memory_limit_bytes=options["memory_limit"],
        output=options["output"],
        resume=options["resume"],
        loader=options["loader"],
        silence_s=options["timeout"],
        profile_schedule=options["profile_schedule"] or DEFAULT_SCHEDULE,
        with_stack=options["stacks"],
        command=as_typed(sys.argv[1:], os.environ),
        door="workload" if options["workload"] else "loader",
    )
    return with_door(settings, forced=options["template"])


def _end_like_ctrl_c() -> None:
    """A polite kill and a closed terminal keep what was measured, as Ctrl-C does."""
    from ..probes.interrupts import like_ctrl_c

    like_ctrl_c()
