"""`batchadvisor` with the moments at which its trials begin and end noted in a file.

    python bench/stamped_run.py STAMPS standby|cold run SCRIPT

Nothing else differs from the command; with `cold` no process stands by.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from batchadvisor.cli import main
from batchadvisor.session.run import Run
from batchadvisor.session.workers.worker_pool import WorkerPool


def stamp(path: str) -> None:
    """From now on every trial is noted: a line of JSON, with seconds of `time.time`."""
    native = Run._run  # noqa: SLF001  nothing public knows when a process is ready for a trial

    def noted(self: Run, worker: Any, request: Any, ordinal: int) -> Any:
        began = time.time()
        trial = native(self, worker, request, ordinal)
        row = {"began": began, "ended": time.time(), "purpose": request.purpose}
        with open(path, "a", encoding="utf-8") as file:  # noqa: PTH123
            print(json.dumps({**row, "worker": trial.worker}), file=file)
        return trial

    Run._run = noted  # type: ignore[method-assign]  # noqa: SLF001


if __name__ == "__main__":
    stamp(sys.argv.pop(1))
    WorkerPool.may_stand_by = sys.argv.pop(1) == "standby"
    main()
