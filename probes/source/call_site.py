"""Where the script made a thing: the innermost frame that is the user's own code."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import FrameType

from ...records import SourceLine

MOST_CALL_SITES = 12
"""Lines of the user's code that are looked at outwards from one."""
MOST_FILES = 60
"""Files of the user's code that are looked through."""
_OWN = str(Path(__file__).parents[2])
_OWN_CODE = tuple(
    f"{_OWN}{os.sep}{part}"
    for part in (
        *("advisor/", "callback/", "cli/", "features/", "probes/", "records/", "reports/"),
        "session/",
        *("errors.py", "spread.py", "units.py"),
    )
)
_TORCH = importlib.util.find_spec("torch")  # found, not imported: the supervisor lives without
_NOT_THE_USER = tuple(
    folder + os.sep
    for folder in {
        *(_TORCH.submodule_search_locations or () if _TORCH is not None else ()),
        sysconfig.get_path("stdlib"),
        sysconfig.get_path("purelib"),
        sysconfig.get_path("platlib"),
    }
)
_PACKAGES = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))
"""Folders of packages, wherever they are: also those of one user, and of the system."""


def is_own(filename: str) -> bool:
    """Whether a frame belongs to this package (and not to its examples or tests)."""
    return filename.startswith(_OWN_CODE)


def is_users(filename: str) -> bool:
    """Whether a frame belongs to the user's code: not torch's, not an installed package's."""
    return (
        not filename.startswith(_NOT_THE_USER)
        and not any(folder in filename for folder in _PACKAGES)
        and not is_own(filename)
        and not filename.startswith("<")
    )


_started_in: list[str] = []
"""The folder in which the command was typed, once the script may leave it; else the present one."""


def start_here() -> None:
    """From now on paths are seen from the present folder, wherever the script goes."""
    with contextlib.suppress(OSError):
        _started_in[:] = [os.getcwd()]  # noqa: PTH109


def source_text(place: SourceLine) -> str:
    """The text of the file that a place names, from wherever the script is by now.

    Raises:
        OSError, ValueError: it cannot be read.
    """
    return Path(*_started_in, place.file).read_text(encoding="utf-8-sig")


def user_call_site() -> SourceLine | None:
    """The line of the script that is being executed, as a path relative to the working folder."""
    return next(_user_lines(), None)


def user_call_sites() -> tuple[SourceLine, ...]:
    """The line that is being executed and the user's lines that led to it, the nearest first."""
    return tuple(islice(_user_lines(), MOST_CALL_SITES))


def user_files() -> tuple[str, ...]:
    """The files of the user's code that were imported so far, as a person would type them.

    Those below the working folder come first: libraries beside it may have more than are looked at.
    """
    files = (getattr(module, "__file__", None) for module in tuple(sys.modules.values()))
    shown = (
        shown_path(file)
        for file in dict.fromkeys(files)
        if isinstance(file, str) and file.endswith(".py") and is_users(file)
    )
    return tuple(sorted(shown, key=os.path.isabs))[:MOST_FILES]


def _user_lines() -> Iterator[SourceLine]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if is_users(name):
            yield SourceLine(file=shown_path(name), line=frame.f_lineno)
        frame = frame.f_back


def shown_path(path: str) -> str:
    """A path as a person would type it: relative when it is below the working folder.

    It is text that a record can hold: bytes of a name that are not UTF-8 are written as escapes.
    """
    full = os.path.abspath(path)  # noqa: PTH100  links stay as the user named them
    with contextlib.suppress(OSError):
        folder = _started_in[0] if _started_in else os.getcwd()  # noqa: PTH109
        full = full.removeprefix(folder + os.sep)
    return full.encode("utf-8", "backslashreplace").decode()
