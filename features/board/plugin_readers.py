"""The processes that torch-tb-profiler starts, one a trace, kept out of the way of Ctrl-C.

They are in the terminal's process group: each would answer Ctrl-C with a traceback of its own, and
the exit of this process would wait for all of them.
"""

from __future__ import annotations

import atexit
import multiprocessing
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing import resource_tracker
from typing import TypeVar

Result = TypeVar("Result")


class Readers:
    """Processes that this one starts through `multiprocessing` from now on; ended at its exit."""

    def __init__(self) -> None:
        self._others = set(multiprocessing.active_children())
        # After multiprocessing registered its own, so that ours is called first.
        atexit.register(self.end, with_manager=True)

    def apart(self, start: Callable[[], Result]) -> Result:
        """Calls `start` in a thread whose threads and processes never see Ctrl-C.

        Both inherit which signals are blocked. The caller's thread is interrupted as ever.
        """
        resource_tracker.ensure_running()  # starting it would let the signal through again
        results: list[Result] = []
        raised: list[BaseException] = []

        def work() -> None:
            try:
                results.append(start())
            except BaseException as error:  # noqa: BLE001  raised again where it is waited for
                raised.append(error)

        thread = threading.Thread(target=work, daemon=True)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            thread.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        thread.join()
        if raised:
            raise raised[0]
        return results[0]

    def end(self, *, with_manager: bool = False) -> None:
        """Kills what was started; the manager of the plugin's cache only at the very end."""
        quiet = 0
        while quiet < 3:  # the plugin's threads may be about to start another
            children = [
                child
                for child in multiprocessing.active_children()
                if child not in self._others
                and (with_manager or not child.name.startswith("SyncManager"))
            ]
            for child in children:
                child.kill()
            quiet = 0 if children else quiet + 1
            time.sleep(0.02)
