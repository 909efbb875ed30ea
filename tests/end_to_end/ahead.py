"""Commands that do not depend on each other, two at a time: most of each runs on one core."""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor

from ..parallel import IN_PARALLEL

AT_ONCE = 1 if IN_PARALLEL else min(2, os.cpu_count() or 1)


class Ahead:
    """Results by name, each made once; who waits for one has the one after it started too.

    Args:
        names: in the order in which they will be asked for; others may be asked for as well.
        start: gives what makes the result of a name, to be called in a thread.
    """

    def __init__(self, names, start):
        self._names = list(dict.fromkeys(names))
        self._start = start
        self._found: dict[str, Future] = {}
        self._pool = ThreadPoolExecutor(AT_ONCE)

    def __call__(self, name):
        coming = self._names[self._names.index(name) :] if name in self._names else [name]
        for later in coming[:AT_ONCE]:
            if later not in self._found:
                self._found[later] = self._pool.submit(self._start(later))
        return self._found[name].result()

    def close(self):
        self._pool.shutdown(cancel_futures=True)


def names_asked_for(session, parameter, known):
    """Values of a parameter among the tests that this session runs, of those that are known."""
    calls = [getattr(item, "callspec", None) for item in session.items]
    values = [call.params.get(parameter) for call in calls if call is not None]
    return [value for value in values if value in known]
