"""Where the script made a thing: the innermost frame that is the user's own code."""

from __future__ import annotations

import importlib.util
import os
import sys
import sysconfig
from pathlib import Path
from types import FrameType

from ..records import SourceLine

_OWN = str(Path(__file__).parent.parent)
_OWN_CODE = tuple(
    f"{_OWN}{os.sep}{part}"
    for part in ("callback/", "probes/", "session/", "records/", "errors.py", "spread.py")
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


def is_own(filename: str) -> bool:
    """Whether a frame belongs to this package (and not to its examples or tests)."""
    return filename.startswith(_OWN_CODE)


def is_users(filename: str) -> bool:
    """Whether a frame belongs to the user's code: not torch's, not an installed package's."""
    return (
        not filename.startswith(_NOT_THE_USER)
        and not is_own(filename)
        and not filename.startswith("<")
    )


def user_call_site() -> SourceLine | None:
    """The line of the script that is being executed, as a path relative to the working folder."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if is_users(name):
            return SourceLine(file=shown_path(name), line=frame.f_lineno)
        frame = frame.f_back
    return None


def shown_path(path: str) -> str:
    """A path as a person would type it: relative when it is below the working folder."""
    full = os.path.abspath(path)  # noqa: PTH100  links stay as the user named them
    try:
        here = os.getcwd() + os.sep  # noqa: PTH109
    except OSError:
        return full
    return full.removeprefix(here)
