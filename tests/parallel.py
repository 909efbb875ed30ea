"""How the files of a session are dealt out, where pytest-xdist runs several tests at once.

`pytest -n 2 --dist loadfile` keeps the tests of a file in one process, since they share expensive
fixtures; some runs are looked at by several files, which belong together as well.
"""

import functools
import os
import re
from pathlib import Path

IN_PARALLEL = "PYTEST_XDIST_WORKER" in os.environ
"""Whether other tests run at the same time, in another process."""
ROOT = Path(__file__).parents[1]
OF_FILES = re.compile(r"\b(styled|memory_run)\b")
"""Fixtures that tests of several files take."""


@functools.cache
def group_of(file):
    """What the tests of a file are kept together with: its name, or that of the shared runs."""
    return "shared runs" if OF_FILES.search((ROOT / file).read_text()) else file


def scheduler(config, log):
    """Deals out the groups; only where pytest-xdist asks for one."""
    from xdist.scheduler import LoadFileScheduling

    class Groups(LoadFileScheduling):
        def _split_scope(self, nodeid):
            return group_of(nodeid.partition("::")[0])

    return Groups(config, log)
