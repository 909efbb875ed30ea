"""Runs in a program that a steered script starts as one of its ranks, before anything of it.

Python imports a module of this name from the front of PYTHONPATH at its start. The variable below
and the entry in PYTHONPATH stand in the environment of that program alone, and are taken out
again here, so that the rank and what it starts see the environment that the script meant for it.
Without the variable this does nothing but give way to the user's own `sitecustomize`.

Kept to the standard library, and short: it runs while the interpreter starts.
"""

from __future__ import annotations

import importlib
import os
import sys

STEERED_RANK = "BATCHADVISOR_STEERED_RANK"
_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
_CODE = (
    "import sys; sys.path[:] = [entry for entry in sys.path if entry]; "
    "from batchadvisor.probes.distributed.started_program import main; main()"
)


def _take_over() -> None:
    plan = os.environ.pop(STEERED_RANK, None)
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if _HERE in entries:
        entries.remove(_HERE)
        os.environ["PYTHONPATH"] = os.pathsep.join(entries)
        if not entries:
            del os.environ["PYTHONPATH"]
    sys.path[:] = [entry for entry in sys.path if entry != _HERE]
    program = _program()
    if plan is not None and program is not None:
        from subprocess import _args_from_interpreter_flags  # type: ignore[attr-defined]

        flags = _args_from_interpreter_flags()
        os.execv(sys.executable, [sys.executable, *flags, "-c", _CODE, plan, *program])


def _program() -> tuple[str, ...] | None:
    """The program to run: `script` or `module`, its name, its arguments; `None` for code."""
    first, *arguments = sys.argv or [""]
    if first == "-m":
        name = sys.orig_argv[len(sys.orig_argv) - len(arguments) - 1].removeprefix("-m")
        return ("module", name, *arguments)
    if first in ("", "-", "-c"):
        return None
    return ("script", first, *arguments)


def _give_way() -> None:
    """The module of this name that would have been imported without us."""
    sys.modules.pop("sitecustomize", None)
    try:
        importlib.import_module(__name__)
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise


if __name__ == "sitecustomize":
    _take_over()
    _give_way()
