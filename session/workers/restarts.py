"""When a script that is over is started again, and what is asked of it otherwise from then on."""

from __future__ import annotations

from ...probes.process.endings import WorkerGone

MAX_RESTARTS = 2
"""New processes for a script that ends in the middle of a trial."""
NEW_SIZE = (
    "no step of its size was made yet, and it is beyond len(loader) batches: its epochs end from "
    "here on, to tell which of the two it was"
)


class Restarts:
    """The restarts of one run.

    Attributes:
        brief: the script ends early, so that a trial must do with few steps.
        left_out: a fault of ours, after which trials measure nothing but time and memory.
        ends_epochs: loaders end their epochs where the script expects it.
    """

    def __init__(self) -> None:
        self.brief = False
        self.left_out = ""
        self.ends_epochs = False
        self._num = 0

    def why_again(self, gone: WorkerGone, num_measured: int) -> str:
        """Why the script is started again, for the user; empty where it is not.

        One that ended by itself is, and its trials are shorter then, unless they were short already
        and it completed none. Once more it is after a fault of ours, and what else is measured of a
        step is left out; and where its epoch would have ended, and its epochs do from then on.

        Args:
            num_measured: trials that it completed.
        """
        if gone.is_own_fault and not self.left_out:
            self.left_out = gone.detail
            return "going on with time and memory alone"
        if gone.is_past_epoch and not self.ends_epochs:
            self.ends_epochs = True
            if gone.is_new_size:
                return NEW_SIZE
            return "that is beyond len(loader) batches: its epochs end from here on"
        if gone.outcome != "script_ended" or (self.brief and not num_measured):
            return ""
        if self._num >= MAX_RESTARTS:
            return ""
        self._num += 1
        self.brief = True
        return "starting it again"
