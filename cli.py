"""The command line: one short function a verb. Heavy imports stay inside, `--help` is fast."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from . import __version__
from .errors import BatchAdvisorError, ScriptError, UsageError

if TYPE_CHECKING:
    from .records import Advice, Goal, RunRecord

    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType  # generic since click 8.2

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it (128 + SIGINT)."""


class _Parsed(ParamType):
    """A value that `units` parses."""

    def __init__(self, name: str, parser: str) -> None:
        self.name = name
        self._parser = parser

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from . import units

        if not isinstance(value, str):
            return value
        try:
            return getattr(units, self._parser)(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class _Sizes(ParamType):
    """`32,64,128`."""

    name = "sizes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            sizes = tuple(int(one) for one in value.split(",") if one.strip())
        except ValueError:
            sizes = ()
        if not sizes or min(sizes) < 1:
            self.fail(f"{value!r} is not a list of sizes: write 32,64,128", param, ctx)
        return sizes


class _Schedule(ParamType):
    """`wait,warm-up,active`."""

    name = "steps"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            steps = tuple(int(one) for one in value.split(","))
        except ValueError:
            steps = ()
        if len(steps) != 3 or min(steps) < 0 or steps[2] < 1 or sum(steps) > 100:
            self.fail(f"{value!r} is not WAIT,WARMUP,ACTIVE with ACTIVE at least 1", param, ctx)
        return steps


SECONDS = _Parsed("duration", "parse_seconds")
BYTES = _Parsed("bytes", "parse_bytes")
SHARE = _Parsed("share", "parse_share")
SIZE = click.IntRange(min=1)
_PATH = click.Path(path_type=Path)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="batchadvisor")
def cli() -> None:
    """Which batch size to use, why, how sure that is, and what holds the device back."""


def _goal_options(function: Any) -> Any:
    for option in reversed(
        [
            click.option(
                "--goal",
                type=click.Choice(["knee", "throughput", "memory", "energy"]),
                default=None,
                help="knee: the smallest size close to the best throughput (default). "
                "throughput: the fastest. memory: the largest that fits. energy: the most samples "
                "per joule (NVIDIA GPUs).",
            ),
            click.option(
                "--memory-margin",
                type=SHARE,
                default=None,
                help="Share of the memory to leave free (default 5%).",
            ),
            click.option(
                "--tolerance",
                type=SHARE,
                default=None,
                help="Throughput that a smaller size may cost under --goal knee (default 5%).",
            ),
            click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout."),
            click.option("--debug", is_flag=True, help="Show our own traceback on errors."),
        ]
    ):
        function = option(function)
    return function


@cli.command(
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
    short_help="Probe a training script and recommend a batch size.",
)
@_goal_options
@click.option("--budget", type=SECONDS, default="120s", help="Time for all trials (default 120s).")
@click.option("--max-batch", type=SIZE, help="Never try more.")
@click.option("--start", type=SIZE, help="First size to time (default: the script's own).")
@click.option("--sizes", type=_Sizes(), default=(), help="Try exactly these: 32,64,128.")
@click.option(
    "--keep-effective-batch",
    is_flag=True,
    help="Choose a micro-batch and an accumulation that keep samples per optimizer step.",
)
@click.option("--device", default="auto", help="auto, cuda, cuda:N, cpu, mps or xpu.")
@click.option("--memory-limit", type=BYTES, help="What the script may use, for example 8GiB.")
@click.option("--loader", type=click.IntRange(min=0), help="Steer this loader (see --dry-run).")
@click.option("--dry-run", is_flag=True, help="Say which loader and optimizer were found, stop.")
@click.option("--no-profile", is_flag=True, help="Leave the profiled windows out.")
@click.option(
    "--profile-schedule",
    type=_Schedule(),
    default=None,
    help="WAIT,WARMUP,ACTIVE steps of the profiled window (default 0,1,3).",
)
@click.option("--stacks", is_flag=True, help="Record Python stacks in the traces.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Folder for the run.")
@click.option("--resume", type=click.Path(path_type=Path), help="Go on with the run in a folder.")
@click.option(
    "--timeout",
    type=SECONDS,
    default="60s",
    help="Silence inside a trial that counts as a hang (default 60s); ten times that before "
    "the training loop is found.",
)
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
@click.option("-m", "module", is_flag=True, help="SCRIPT is a module, as with python -m.")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(script: str, arguments: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Probe the training script SCRIPT; everything after it is the script's own.

    The script runs unchanged. Its training DataLoader is taken over, short windows are measured
    at growing batch sizes, and the size to use is printed with its evidence.
    """
    from .reports.progress import NullDisplay, ProgressDisplay
    from .session import run as session
    from .session.store import read_record

    _end_like_ctrl_c()
    goal = _goal(options)
    _check_pairs(options)
    _check_text([script, *arguments])
    settings = _run_options(script, arguments, goal, options)
    spent_s = 0.0
    if options["resume"] is not None:
        spent_s = read_record(options["resume"]).search_s
    display: Any = (
        NullDisplay() if options["quiet"] else ProgressDisplay(goal.budget_s, spent_s=spent_s)
    )
    if options["dry_run"]:
        _print_discovery(*session.discover(settings, display), as_json=as_json)
        return
    result = session.run(settings, display)
    _print_answer(result.record, result.advice, result.folder, as_json=as_json)
    if result.record.state == "interrupted":
        sys.exit(INTERRUPTED)
    if result.error is not None:
        raise result.error
    if result.advice.recommended is None:
        sys.exit(1)


@cli.command(short_help="Advise again from a record, also under another goal.")
@_goal_options
@click.argument("record", type=click.Path(path_type=Path))
def advise(record: Path, as_json: bool, **options: Any) -> None:
    """Advise again from RECORD, a run's folder or its record.json. Needs no torch."""
    from .advisor.advise import advise as advise_on
    from .session.options import check_energy
    from .session.store import read_record

    found = read_record(record)
    folder = record if record.is_dir() else record.parent
    goal = _goal(options, found.goal)
    check_energy(found, goal)
    advice = advise_on(found, goal)
    _print_answer(found, advice, folder, as_json=as_json)
    if advice.recommended is None:
        sys.exit(1)


@cli.command(short_help="Say what limits the steps of traces that exist already.")
@click.option("--kernels", type=click.IntRange(min=1), help="Show so many kernels by time.")
@click.option("--steps", is_flag=True, help="Show each step.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")
@click.option("--debug", is_flag=True, help="Show our own traceback on errors.")
@click.argument("traces", metavar="TRACE...", nargs=-1, required=True, type=_PATH)
def analyze(
    traces: tuple[Path, ...], kernels: int | None, steps: bool, as_json: bool, debug: bool
) -> None:
    """Say what limits the steps of TRACE: files of torch.profiler, or folders of them.

    Traces of several ranks of one job are taken together. Needs no torch.
    """
    del debug  # `main` looks for it
    from .session import analyze as session

    found = session.analyze(traces, num_kernels=kernels or 10)
    if as_json:
        click.echo(session.analysis_json(found))
        return
    width, color = _terminal()
    text = session.analysis_text(
        found, traces, steps=steps, kernels=kernels or 0, width=width, color=color
    )
    click.echo(text, color=color)


def _goal(options: dict[str, Any], base: Goal | None = None) -> Goal:
    import msgspec

    from .records import Goal

    changes = {
        "kind": options["goal"],
        "margin": options["memory_margin"],
        "tolerance": options["tolerance"],
        "budget_s": options.get("budget"),
        "max_batch": options.get("max_batch"),
        "start": options.get("start"),
        "sizes": options.get("sizes") or None,
        "profile": False if options.get("no_profile") else None,
        "keep_effective_batch": options.get("keep_effective_batch") or None,
    }
    given = {name: value for name, value in changes.items() if value is not None}
    return msgspec.structs.replace(base or Goal(), **given)


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
    from .session.options import RunOptions

    return RunOptions(
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
        profile_schedule=options["profile_schedule"] or (0, 1, 3),
        with_stack=options["stacks"],
        command=("batchadvisor", *sys.argv[1:]),
    )


def _print_answer(record: RunRecord, advice: Advice, folder: Path, *, as_json: bool) -> None:
    from .session.answer import answer_json, answer_text

    if as_json:
        click.echo(answer_json(record, advice, folder))
        return
    width, color = _terminal()
    click.echo(answer_text(record, advice, folder, width=width, color=color), color=color)


def _print_discovery(discovery: Any, device: Any, *, as_json: bool) -> None:
    from .session.answer import discovery_json, discovery_text

    click.echo(discovery_json(discovery, device) if as_json else discovery_text(discovery, device))


def _end_like_ctrl_c() -> None:
    """A polite kill and a closed terminal keep what was measured, as Ctrl-C does."""
    import signal

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)


def _terminal() -> tuple[int, bool]:
    """Columns of the terminal, and whether colours make sense (no-color.org)."""
    import shutil

    is_terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size((100, 24)).columns
    return width, is_terminal and not os.environ.get("NO_COLOR")


def main() -> NoReturn:
    """The entry point: every error is one line of what, why and what to do."""
    debug = "--debug" in sys.argv
    try:
        code = cli.main(standalone_mode=False)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except click.exceptions.Abort:
        click.echo("Interrupted.", err=True)
        sys.exit(INTERRUPTED)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # Whoever read our output has enough; Python's own last flush must not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except KeyboardInterrupt:
        if debug:
            raise
        click.echo("Interrupted.", err=True)
        sys.exit(INTERRUPTED)
    except BatchAdvisorError as error:
        if debug:
            raise
        if isinstance(error, ScriptError) and error.script_traceback:
            click.echo(error.script_traceback, err=True)
        click.echo(f"Error: {error}", err=True)
        sys.exit(error.exit_code)
    sys.exit(code or 0)
