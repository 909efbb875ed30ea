"""Parts that several verbs share: the options of a goal, the terminal, the printed answer."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..errors import BatchAdvisorError, UsageError
from .types import PLACE, SHARE, SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..records import Advice, Goal, RunRecord


JSON_OPTION = "--json"
Decorated = TypeVar("Decorated", bound="Callable[..., Any]")


class Debug:
    """Whether our own traceback is wanted; a script may take a `--debug` of its own."""

    wanted = False


class ScriptLast(click.Command):
    """A command whose own options may stand anywhere; the script's follow `--`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Says where the script's options go if one of them stands among ours."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            hint = "Arguments of the script follow a '--'."
            raise click.UsageError(f"{error.format_message()} {hint}", ctx) from None


class ScriptFirst(click.Command):
    """A command whose SCRIPT gets all that follows it; one `--` may stand on either side of it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Leaves out a `--` behind SCRIPT, unless one stands ahead: then it is the script's."""
        typed = list(args)
        left = super().parse_args(ctx, args)
        arguments = ctx.params["arguments"]
        ahead = typed[: len(typed) - len(arguments) - 1]
        if arguments[:1] == ("--",) and ahead[-1:] != ["--"]:
            ctx.params["arguments"] = arguments[1:]
        return left


class JsonOrBrief(click.Command):
    """A command whose `--json` may be `--json=brief`; the function gets `brief` besides."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Takes the word behind the equals sign, which click refuses behind a flag."""
        try:
            left, brief = super().parse_args(ctx, list(args)), False
        except click.BadOptionUsage as error:
            if error.option_name != JSON_OPTION:
                raise
            place = next(at for at, word in enumerate(args) if word.startswith(f"{JSON_OPTION}="))
            if args[place] != f"{JSON_OPTION}=brief":
                msg = f"{args[place]!r}: --json prints everything, --json=brief less than 2 KB."
                raise click.BadOptionUsage(JSON_OPTION, msg, ctx) from None
            left, brief = (
                super().parse_args(ctx, [*args[:place], JSON_OPTION, *args[place + 1 :]]),
                True,
            )
        ctx.params["brief"] = brief
        return left


def _want_debug(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    del context, parameter
    Debug.wanted = value


debug_option = click.option(
    "--debug",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_want_debug,
    help="Show batchadvisor's own traceback on errors.",
)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON on stdout.")
force_option = click.option(
    "--force", is_flag=True, help="Overwrite a file that this command did not write."
)


def output_option(what: str) -> Callable[[Decorated], Decorated]:
    """The option for the file that gets it, in any format that a page has."""
    return click.option(
        "-o",
        "--output",
        type=PLACE,
        help=f"Write the {what} to this file; its suffix sets the format: .html, .md or .json.",
    )


multiple_option = click.option(
    "--multiple-of",
    type=SIZE,
    metavar="K",
    help="Sizes, the last batch too, have to be multiples of K: 2 for Mixup, 4 for groups of 4.",
)


def goal_options(function: Any) -> Any:
    for option in reversed(
        [
            click.option(
                "--goal",
                type=click.Choice(["knee", "throughput", "memory", "energy"]),
                default=None,
                help="knee: the smallest size close to the best throughput (default for a run). "
                "throughput: the fastest size. memory: the largest size that fits. energy: the "
                "most samples per joule (NVIDIA GPUs).",
            ),
            click.option(
                "--memory-margin",
                type=SHARE,
                default=None,
                help="Share of the memory to leave free (default for a run: 5%).",
            ),
            click.option(
                "--tolerance",
                type=SHARE,
                default=None,
                help="Throughput that a smaller size may lose under --goal knee "
                "(default for a run: 5%).",
            ),
            json_option,
            debug_option,
        ]
    ):
        function = option(function)
    return function


def goal_of(options: dict[str, Any], base: Goal | None = None) -> Goal:
    from ..session.setup.goals import goal_from

    changes = {
        "kind": options["goal"],
        "margin": options["memory_margin"],
        "tolerance": options["tolerance"],
        "budget_s": options.get("budget"),
        "max_batch": options.get("max_batch"),
        "start": options.get("start"),
        "sizes": options.get("sizes") or None,
        "multiple_of": options.get("multiple_of"),
        "profile": False if options.get("no_profile") else None,
        "keep_effective_batch": options.get("keep_effective_batch") or None,
        "worst_case": options.get("worst_case") or None,
        "precision": options.get("precision"),
    }
    given = {name: value for name, value in changes.items() if value is not None}
    return goal_from(given, base)


@contextlib.contextmanager
def options_kept(command: Sequence[str], num_script_words: int) -> Iterator[None]:
    """A command that an error proposes keeps the options that were typed."""
    from ..session.setup.options_as_typed import with_options_typed

    try:
        yield
    except BatchAdvisorError as error:
        error.remedy = with_options_typed(error.remedy, command, num_script_words)
        raise


def print_answer(
    record: RunRecord,
    advice: Advice,
    folder: Path,
    *,
    as_json: bool,
    verbose: bool,
    brief: bool = False,
    offers: bool = True,
) -> None:
    """Prints it.

    Args:
        offers: names the command that tries remedies.
    """
    from ..session.answer import answer_json, answer_text, brief_text

    if brief:
        from ..session.brief import brief_json

        click.echo(brief_json(record, advice, folder))
        return
    if as_json:
        click.echo(answer_json(record, advice, folder))
        return
    width, color = terminal()
    if verbose:
        text = answer_text(record, advice, folder, width=width, color=color)
    else:
        text = brief_text(record, advice, folder, width=width, color=color, offers=offers)
    click.echo(text, color=color)


verbose_option = click.option(
    "-v", "--verbose", is_flag=True, help="Print the whole answer, not one screen of it."
)


def check_output_and_json(
    output: Path, *, as_json: bool, force: bool, what: str = "report"
) -> None:
    """Refuses a file that cannot be written, or one beside `--json`, before any work."""
    from ..session.report import check_output

    if as_json:
        msg = f"--json prints the {what}, --output writes it to a file."
        raise UsageError(msg, "Use one of them.")
    check_output(output, force=force)


def end_like_ctrl_c() -> None:
    """A polite kill and a closed terminal keep what was measured, as Ctrl-C does."""
    from ..probes.process.interrupts import like_ctrl_c, never_lost

    never_lost()
    like_ctrl_c()


def terminal() -> tuple[int, bool]:
    """Columns of the terminal, and whether colours make sense (no-color.org)."""
    import shutil

    isterminal = sys.stdout.isatty()
    width = shutil.get_terminal_size((100, 24)).columns
    return width, isterminal and not os.environ.get("NO_COLOR")


def wrote(what: str, path: Path) -> None:
    """Says that a file was written, and how large it is."""
    size = path.stat().st_size
    text = f"{size / 1000:.0f} kB" if size >= 1000 else f"{size} bytes"
    click.echo(f"Wrote {what}  {path} ({text})")
