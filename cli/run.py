"""`batchadvisor run`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from ..errors import RunError, UsageError
from ..session.features import part_of
from .common import (
    Debug,
    JsonOrBrief,
    ScriptFirst,
    end_like_ctrl_c,
    goal_of,
    goal_options,
    multiple_option,
    options_kept,
    print_answer,
    terminal,
    verbose_option,
)
from .types import BYTES, PLACE, SCHEDULE, SECONDS, SHARE, SIZE, SIZES, files

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..session.setup.options import RunOptions


SECTIONS = {
    "What to find": ("goal", "sizes", "tried", "dry_run"),
    "Limits": ("budget", "max_batch", "memory_limit"),
    "Which device": ("device", "gpus", "nproc_per_node"),
    "What to keep": ("output", "resume", "as_json", "verbose"),
    "Help": ("help_all",),
}
"""Options that `--help` shows, by title: those that most people use."""
MORE = {
    "What to find": (
        *("tolerance", "start", "multiple_of", "worst_case", "precision"),
        "keep_effective_batch",
    ),
    "Limits": ("memory_margin", "timeout"),
    "Which device": ("engine", "gres", "slurm_options", "time_limit"),
    "What to keep": ("no_profile", "profile_schedule", "stacks", "quiet", "debug"),
    "How to start the script": ("module", "loader", "template", "setting", "workload"),
}
"""`--help-all` shows these too."""


class TwoLevels(JsonOrBrief, ScriptFirst):
    """A command whose help shows the options in sections, on a short page and on a full one."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the sections of the page."""
        everything = ctx.meta.get(EVERYTHING, False)
        records = {each.name: each.get_help_record(ctx) for each in self.get_params(ctx)}
        for title in [*MORE, "Help"] if everything else SECTIONS:
            names = [*SECTIONS.get(title, ()), *(MORE.get(title, ()) if everything else ())]
            rows = [row for row in map(records.get, names) if row is not None]
            with formatter.section(title):
                formatter.write_dl(rows)


EVERYTHING = "batchadvisor.help-all"


def _show_all(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    del parameter
    if value and not context.resilient_parsing:
        context.meta[EVERYTHING] = True
        click.echo(context.get_help(), color=context.color)
        context.exit()


@click.command(
    cls=TwoLevels,
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
    short_help="Recommend a batch size for a training script.",
)
@click.option(
    "--help-all",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_all,
    help="Show every option and exit.",
)
@goal_options
@click.option("--budget", type=SECONDS, default="120s", help="Time for all trials (default: 120s).")
@click.option("--max-batch", type=SIZE, help="Largest batch size to try.")
@click.option("--start", type=SIZE, help="First size to time (default: the script's own).")
@click.option("--sizes", type=SIZES, default=(), help="Try exactly these sizes: 32,64,128.")
@multiple_option
@click.option(
    "--precision",
    type=SHARE,
    help="Time each size until its median step is known to this share, as far as a third of the "
    "budget takes it (default: 5% on a CPU, 2% elsewhere).",
)
@click.option(
    "--keep-effective-batch",
    is_flag=True,
    help="Choose a micro-batch and an accumulation that keep the samples per optimizer step.",
)
@click.option(
    "--device",
    default="auto",
    help="auto, cuda, cuda:N (counting visible GPUs), cuda:all, cpu, mps or xpu. cpu:1@0.4 is one "
    "core for 40 % of its time; separate several such CPU devices by commas.",
)
@click.option(
    "--gpus", help="Probe several visible GPUs at once: all, 0,2, or distinct (one per model)."
)
@click.option(
    "--worst-case",
    is_flag=True,
    help="Start every trial with the longest samples, if samples differ in length.",
)
@click.option("--memory-limit", type=BYTES, help="Memory that the script may use, such as 8GiB.")
@click.option(
    "--engine",
    type=click.Choice(["slurm", "ray"]),
    help="Run SCRIPT on one GPU of each type of a cluster, started by its engine.",
)
@click.option(
    "--gres",
    multiple=True,
    help="With --engine slurm, a GPU type: gpu:a100:1. Give one or more (default: all).",
)
@click.option(
    "--slurm-options", default="", help="More options of sbatch and srun: '--partition gpu -c 8'."
)
@click.option(
    "--time-limit",
    type=SECONDS,
    help="With --engine, cancel a probe after this long, the wait for a node included "
    "(default: 1h).",
)
@click.option(
    "--nproc-per-node",
    type=SIZE,
    help="Start SCRIPT as this many ranks on this host, as torchrun does. They run in lock-step.",
)
@click.option(
    "--loader", type=click.IntRange(min=0), help="Number of the loader to steer (see --dry-run)."
)
@click.option(
    "--try",
    "tried",
    metavar="NAMES",
    default="",
    help="Then try remedies for what limits the step, each beside the script as it is: all, or "
    "workers,amp,compile,... It takes up to three times the budget more.",
)
@click.option(
    "--dry-run", is_flag=True, help="Show which loader and optimizer were found, then stop."
)
@click.option("--no-profile", is_flag=True, help="Skip the profiled windows.")
@click.option(
    "--profile-schedule",
    type=SCHEDULE,
    default=None,
    help="WAIT,WARMUP,ACTIVE steps of the profiled window (default: 0,1,3).",
)
@click.option("--stacks", is_flag=True, help="Record Python stacks in the traces.")
@click.option(
    "-o",
    "--output",
    type=PLACE,
    help="Folder for the results (default: a new one in batchadvisor-runs).",
)
@click.option("--resume", type=PLACE, help="Continue the run in this folder.")
@click.option(
    "--timeout",
    type=SECONDS,
    default="60s",
    help="A trial that is silent for this long counts as hung (default: 60s). Until the training "
    "loop is found, the limit is ten times as long.",
)
@verbose_option
@click.option("-q", "--quiet", is_flag=True, help="Show no progress.")
@click.option("-m", "module", is_flag=True, help="SCRIPT is a module, as with python -m.")
@click.option(
    "--template",
    is_flag=True,
    help="Start one process per size, even if a DataLoader could be steered. Write {batch_size} in "
    "SCRIPT's arguments, or name the number with --set.",
)
@click.option(
    "--set",
    "setting",
    metavar="NAME={batch_size}",
    help="The number NAME in SCRIPT sets its batch size: start it once for each size with another "
    "number there. The file stays as it is.",
)
@click.option(
    "--workload",
    is_flag=True,
    help="SCRIPT is FILE.py[:NAME], which declares make(batch_size) and needs no training loop.",
)
@click.argument("script", shell_complete=files)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, shell_complete=files)
def run(script: str, arguments: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Recommend a batch size for the training script SCRIPT. Everything after SCRIPT goes to it.

    The script stays unchanged. batchadvisor takes over its training DataLoader, measures short
    windows at growing batch sizes, and prints the size to use with the evidence.

    A script that takes no other size through its DataLoader, or has none, is started once for each
    size. Where no single option or number sets its size, write {batch_size} in its arguments, or
    name the number with --set.

    With --json=brief it prints less than 2 KB: the size, why, the change as a diff for git apply.

    SCRIPT may be wrapped: python, torchrun or accelerate launch.
    """
    from ..session.setup.options_handed_over import handed_over
    from ..session.setup.wrapped import unwrapped

    end_like_ctrl_c()
    _check_text([_working_folder(), *sys.argv[1:]])
    given = handed_over(os.environ)
    if given is not None:  # a part of another run: nothing was typed here
        Debug.wanted = given.debug
        with options_kept(given.command, len(given.script_words)):
            _alone(lambda: given)
        return

    _check_brief(options)
    launcher: tuple[str, ...] = ()
    wrapped = None if options["module"] else unwrapped(script, arguments)
    if wrapped is not None:
        launcher, script, arguments, options["module"] = wrapped
        _check_wrapped(launcher, options)

    def run_options() -> RunOptions:
        return _options_of(script, arguments, as_json=as_json, launcher=launcher, options=options)

    with options_kept(("batchadvisor", *sys.argv[1:]), 1 + len(arguments)):
        _start(run_options, arguments, launcher, options)


def _start(
    run_options: Callable[[], RunOptions],
    arguments: tuple[str, ...],
    launcher: tuple[str, ...],
    options: dict[str, Any],
) -> None:
    """Starts what was asked for: on a cluster, on several devices, as ranks, or one run."""
    from ..session.workers import ranks

    if options["tried"]:
        _remedies().check(run_options())
    if options["engine"] is not None:
        sys.exit(_with_engine(run_options(), options))
    _check_without_engine(options["gres"], options["slurm_options"], options["time_limit"])
    if options["gpus"] is not None or "," in options["device"]:
        sys.exit(_on_several_devices(run_options()))
    rank = ranks.own_rank()
    several = bool(launcher) or (rank is not None and rank.world_size > 1)
    _check_door(arguments, options, ranks=several)
    if options["nproc_per_node"] is not None or launcher:
        from ..session.workers.launcher import launch

        sys.exit(launch(run_options()))
    _alone(run_options)


def _alone(run_options: Callable[[], RunOptions]) -> None:
    """One run, of which this process may be a rank: rank 0 alone looks at the options."""
    from ..session.workers import ranks
    from ..session.workers.launcher import leave_pid

    rank = ranks.own_rank()
    if rank is not None and rank.rank > 0:
        ranks.follow(rank)
        return
    with ranks.lead(rank) as group:
        leave_pid()
        _run(run_options(), group)


def _run(options: RunOptions, group: Any) -> None:
    from ..probes.process.interrupts import exit_code
    from ..reports.terminal.progress import NullDisplay, ProgressDisplay
    from ..session import run as session
    from ..session.recording.store import read_record

    spent_s = 0.0
    if options.resume is not None:
        spent_s = read_record(options.resume).search_s
    display: Any = (
        NullDisplay() if options.quiet else ProgressDisplay(options.goal.budget_s, spent_s=spent_s)
    )
    if options.dry_run:
        from ..session.answer import discovery_json, discovery_text

        shown = discovery_json if options.as_json else discovery_text
        click.echo(shown(*session.discover(options, display, group)))
        return
    names = _remedies().check(options) if options.tried else ()
    result = session.run(options, display, group)
    chosen = result.advice.recommended is not None
    tries = bool(names) and chosen and result.record.state == "finished"
    if not (tries and options.as_json):  # which is one document
        _print(result, options)
    if tries:
        _try(result, options, names)
    elif names and result.record.state == "finished" and not options.quiet:
        click.echo("Remedies were not tried: no size was chosen to try them at.", err=True)
    if result.record.state == "interrupted":
        sys.exit(exit_code())
    if result.error is not None:
        raise result.error
    if result.advice.recommended is None:
        sys.exit(1)


def _print(result: Any, options: RunOptions) -> None:
    print_answer(
        result.record, result.advice, result.folder,
        as_json=options.as_json, verbose=options.verbose, brief=options.brief,
        offers=not options.tried,
    )  # fmt: skip


def _try(result: Any, options: RunOptions, names: tuple[str, ...]) -> None:
    """Tries remedies after the answer, which is printed whatever becomes of them."""
    from ..probes.process.interrupts import exit_code
    from ..reports.terminal.progress import NullDisplay, ProgressDisplay

    remedies = _remedies()
    display: Any = NullDisplay() if options.quiet else ProgressDisplay(options.goal.budget_s)
    try:
        tried = remedies.after_run(options, result, names, display)
    finally:
        if options.as_json:
            _print(result, options)
    if not options.as_json:
        width, color = terminal()
        click.echo(remedies.text(tried, result.folder, width=width, color=color), color=color)
    if tried.state == "interrupted":
        sys.exit(exit_code())
    if tried.state == "failed":
        raise RunError(f"remedies: {tried.reason}.", "The answer of the run stands.")


def _remedies() -> Any:
    """The feature's part for this command, found by name."""
    return part_of("remedies", "command")


def _on_several_devices(options: RunOptions) -> int:
    from ..probes.process.interrupts import exit_code
    from ..reports.terminal.progress import NullDisplay, ProgressDisplay
    from ..session.devices import several

    display: Any = NullDisplay() if options.quiet else ProgressDisplay(options.goal.budget_s)
    outcome = several.run(options, display)
    width, color = terminal()
    click.echo(several.answer(outcome, width=width, color=color, as_json=options.as_json))
    if outcome.record.state == "interrupted":
        return exit_code()
    return 0 if outcome.recommends else 1


def _with_engine(options: RunOptions, typed: dict[str, Any]) -> int:
    """The feature's part for this command, found by name."""
    plan: Any = part_of("plan", "run_with_engine")
    code: int = plan.run_with_engine(options, typed)
    return code


def _check_without_engine(gres: tuple[str, ...], slurm_options: str, limit_s: float | None) -> None:
    """Fails on options of an engine where none was named.

    Raises:
        UsageError: there is one.
    """
    given = {
        "--gres": bool(gres),
        "--slurm-options": bool(slurm_options),
        "--time-limit": limit_s is not None,
    }
    for option, is_given in given.items():
        if is_given:
            raise UsageError(f"{option} needs --engine.", "Name the engine, or leave it out.")


def _check_door(arguments: tuple[str, ...], options: dict[str, Any], *, ranks: bool) -> None:
    """Ranks run in lock-step through their DataLoaders; no other door is open to them."""
    from ..probes.source.placeholder import has_placeholder

    if not ranks and options["nproc_per_node"] is None:
        return
    doors = options["template"] or options["workload"] or options["setting"]
    if doors or has_placeholder(arguments):
        raise UsageError(
            "several ranks are steered through their DataLoaders; {batch_size}, --template, --set "
            "and --workload need a single process.",
            "Run one process, or leave these out.",
        )


def _check_brief(options: dict[str, Any]) -> None:
    """An answer below 2 KB is of one device, and there is one."""
    several = options["gpus"] is not None or "," in options["device"]
    if options["brief"] and (several or options["dry_run"] or options["engine"] is not None):
        raise UsageError(
            "--json=brief is the answer of a run on one device: it goes with no --gpus, --engine, "
            "--dry-run and list of devices.",
            "Use --json.",
        )


def _check_wrapped(launcher: tuple[str, ...], options: dict[str, Any]) -> None:
    """A launcher decides itself how many processes there are, and on which devices."""
    for option in ("nproc_per_node", "gpus", "engine"):
        if launcher and options[option] is not None:
            msg = f"--{option.replace('_', '-')} and a launcher of your own contradict each other."
            raise UsageError(msg, "Leave one of them out.")


def _working_folder() -> str:
    try:
        return os.getcwd()  # noqa: PTH109
    except OSError as error:
        msg = f"cannot find the working folder: {error.strerror}."
        raise UsageError(msg, "Change to one that exists.") from error


def _check_text(words: list[str]) -> None:
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError as error:
            raise UsageError(
                f"{word!r} is not valid UTF-8, which the record needs.", "Rename it."
            ) from error


def _options_of(
    script: str,
    arguments: tuple[str, ...],
    *,
    as_json: bool,
    launcher: tuple[str, ...],
    options: dict[str, Any],
) -> RunOptions:
    from ..session.setup.checked_options import COMMAND_LINE, checked_options

    return checked_options(
        COMMAND_LINE,
        script=script,
        arguments=tuple(arguments),
        module=options["module"],
        goal=goal_of(options),
        device=options["device"],
        gpus=options["gpus"],
        num_ranks=options["nproc_per_node"],
        launcher=launcher,
        memory_limit_bytes=options["memory_limit"],
        output=options["output"],
        resume=options["resume"],
        loader=options["loader"],
        timeout_s=options["timeout"],
        profile_schedule=options["profile_schedule"],
        stacks=options["stacks"],
        template=options["template"],
        setting=options["setting"],
        door="workload" if options["workload"] else "loader",
        command=("batchadvisor", *sys.argv[1:]),
        tried=options["tried"],
        dry_run=options["dry_run"],
        as_json=as_json,
        brief=options["brief"],
        verbose=options["verbose"],
        quiet=options["quiet"],
        debug=Debug.wanted,
    )
