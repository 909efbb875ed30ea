"""`python -m batchadvisor`, and the command `batchadvisor`."""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import NoReturn

from .errors import INTERRUPTED


def main() -> NoReturn:
    """The entry point. Ctrl-C while modules are loaded ends the command without a traceback."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    from .cli import main as command  # noqa: PLC0415  after the handler

    command()


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """Nothing was begun: an exception would meet half a module."""
    del number, frame
    os.write(2, b"Interrupted.\n")
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
