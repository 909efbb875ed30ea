"""The command line: one file a verb. Heavy imports stay inside the verbs, `--help` is fast."""

from __future__ import annotations

import errno
import os
import signal
import sys
from typing import NoReturn

import click

from .. import __version__
from ..errors import BatchAdvisorError, ScriptError
from ..session.features import part_of
from .advise import advise
from .analyze import analyze
from .common import Debug
from .doctor import doctor
from .report import report
from .run import run
from .show import show
from .tails import tails

__all__ = ["cli", "main"]

NO_ROOM_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""Why standard output may take no more."""
VERBS = (run, show, advise, analyze, report, tails, doctor)


FEATURES = {
    "compare": "gate",
    "emit": "plan",
    "estimate": "estimate",
    "memory": "snapshot",
    "plan": "plan",
    "view": "board",
}
"""Verbs of features, and whose they are: `features/NAME/command.py`."""


class Verbs(click.Group):
    """The verbs; those of a feature are found by name when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, as `--help` lists them."""
        return sorted([*super().list_commands(ctx), *FEATURES])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb of that name, if there is one."""
        if cmd_name not in FEATURES:
            return super().get_command(ctx, cmd_name)
        command: click.Command = getattr(part_of(FEATURES[cmd_name], "command"), cmd_name)
        return command


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="batchadvisor")
def cli() -> None:
    """Recommend a batch size for a training script, and say what limits its speed."""


for _verb in VERBS:
    cli.add_command(_verb)


def main() -> NoReturn:
    """The entry point.

    Where `run` started a launcher, the exit code goes to it through a file: the
    launcher would make a report of its own of any other than 0.
    """
    _open_standard_streams()
    path = os.environ.get("BATCHADVISOR_EXIT_CODE_FILE")
    if path is None:
        _main()
    try:
        _main()
    except SystemExit as error:
        if os.environ.get("RANK", "0") == "0":
            with open(path, "w", encoding="ascii") as file:  # noqa: PTH123
                file.write(str(error.code or 0))
    sys.exit(0)


def _open_standard_streams() -> None:
    """Closed ones lead nowhere from here on: else our pipes would take their numbers."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


def _main() -> NoReturn:
    """Every error is one line of what, why and what to do."""
    try:
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.default_int_handler)  # see __main__
        code = cli.main(standalone_mode=False)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except click.exceptions.Abort:
        _interrupted()
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except BrokenPipeError:  # whoever read our output has enough
        _close_output()
        sys.exit(1)
    except OSError as error:
        if Debug.wanted or error.filename is not None or error.errno not in NO_ROOM_ERRORS:
            raise
        _close_output()
        click.echo(f"Error: cannot write the answer: {error.strerror}.", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        if Debug.wanted:
            raise
        _interrupted()
    except BatchAdvisorError as error:
        if Debug.wanted:
            raise
        if isinstance(error, ScriptError) and error.script_traceback:
            click.echo(error.script_traceback, err=True)
        if error.files:
            from ..session.answer import touched_text

            click.echo(f"{touched_text(error.files)}\n", err=True)
        click.echo(f"Error: {error}", err=True)
        sys.exit(error.exit_code)
    sys.exit(code or 0)


def _interrupted() -> NoReturn:
    from ..probes.process.interrupts import exit_code

    click.echo("Interrupted.", err=True)
    sys.exit(exit_code())


def _close_output() -> None:
    """Python's own last flush must not complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
