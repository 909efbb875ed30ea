"""A terminal for the script's standard input: as wide as the user's, with nobody who types.

Scripts ask for its size (`stty size`). Each read of it says end of file, as those of a closed input
do; it controls no session, so that nothing that is typed reaches the script.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import struct

USUAL = (80, 24)


def open_terminal() -> tuple[int, int] | None:
    """Our end and the script's; `None` where there is none to be had.

    It is one for as long as ours stays open.
    """
    if not hasattr(os, "openpty"):  # not a POSIX system
        return None
    import fcntl
    import termios

    try:
        ours, theirs = os.openpty()
    except OSError:
        return None
    with contextlib.suppress(termios.error, OSError):
        modes = termios.tcgetattr(theirs)
        modes[3] &= ~(termios.ICANON | termios.ECHO)
        modes[6][termios.VMIN] = modes[6][termios.VTIME] = 0  # a read waits for nothing
        termios.tcsetattr(theirs, termios.TCSANOW, modes)
        columns, lines = _size()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        return ours, theirs
    os.close(ours)
    os.close(theirs)
    return None


def _size() -> tuple[int, int]:
    """Columns and lines of the user's terminal, or those that the environment names."""
    for stream in range(3):
        with contextlib.suppress(OSError):
            size = os.get_terminal_size(stream)
            if min(size) > 0:
                return size
    return shutil.get_terminal_size(USUAL)
