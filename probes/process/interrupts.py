"""Ctrl-C and its kin: who interrupted, and moments at which that would lose a process."""

from __future__ import annotations

import _thread
import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NoReturn

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_came: list[int] = []
"""Signals other than Ctrl-C that interrupted this process."""


def like_ctrl_c() -> dict[int, Any]:
    """Lets a polite kill and a closed terminal interrupt this process as Ctrl-C does.

    What is ignored stays ignored: `nohup` means that the closed terminal shall end nothing.

    Returns:
        The handlers before, by signal, of those that changed.
    """
    return {
        number: signal.signal(number, _interrupt)
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN
    }


def never_lost() -> None:
    """An interrupt that Python would drop comes again a moment later; for a process of our own.

    In a `__del__` or the callback of a weak reference, as the import of a module has them, an error
    is printed as ignored and the program goes on.
    """
    usual, main = sys.unraisablehook, threading.main_thread().ident

    def again(number: signal.Signals) -> None:
        assert main is not None
        # By then the hook is over, and whatever the main thread waits for has begun to wait.
        time.sleep(0.01)
        signal.pthread_kill(main, number)

    def hook(ignored: sys.UnraisableHookArgs) -> None:
        if isinstance(ignored.exc_value, KeyboardInterrupt):
            _thread.start_new_thread(again, (signal_of(ignored.exc_value),))
        else:
            usual(ignored)

    sys.unraisablehook = hook


def cause_of(interrupt: BaseException) -> str:
    """Names what interrupted us.

    >>> cause_of(KeyboardInterrupt()), cause_of(KeyboardInterrupt("SIGTERM"))
    ('Ctrl-C', 'SIGTERM')
    """
    name = str(interrupt)
    return name if name in (signal.SIGTERM.name, signal.SIGHUP.name) else "Ctrl-C"


def exit_code() -> int:
    """Exit code of this process after an interrupt, as shells have it: 128 plus the signal."""
    return 128 + (_came[0] if _came else signal.SIGINT)


def signal_of(interrupt: BaseException) -> signal.Signals:
    """The signal that passes an interrupt on to another process of ours."""
    return signal.Signals[cause_of(interrupt).replace("Ctrl-C", "SIGINT")]


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    del frame
    _came.append(number)
    raise KeyboardInterrupt(signal.Signals(number).name)


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Signals that end us come after the block: a process started in it is known by then.

    A `KeyboardInterrupt` between the fork and the assignment of the process would leave it running.
    It inherits nothing: handlers in Python are gone after exec. Only the main thread is interrupted
    by signals; in others the block just runs.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    usual: dict[signal.Signals, Callable[[int, FrameType | None], object]] = {}
    for signum in ENDING:
        handler = signal.getsignal(signum)
        if callable(handler):
            usual[signum] = handler
    came: list[int] = []
    holding = True

    def hold(number: int, frame: FrameType | None) -> None:
        if holding:
            came.append(number)
        else:  # one that comes while the others are being put back
            usual[signal.Signals(number)](number, frame)

    try:
        for signum in usual:
            signal.signal(signum, hold)
        yield
    finally:
        holding = False
        for signum, handler in usual.items():
            signal.signal(signum, handler)
        if came:
            signal.raise_signal(came[0])
