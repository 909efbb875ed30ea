"""To what size batches are cut while the training loop is looked for."""

from __future__ import annotations

from ...advisor.measured.measurements import Measurements
from ...records import RunRecord

BATCH_CAPS = (8, 1)
"""Sizes with which discovery is tried again when the script's own does not fit."""


def safe_cap(record: RunRecord) -> int | None:
    """A size for the batches before steering, where the script's own is known not to fit."""
    measurements = Measurements.of(record)
    failed, own = measurements.failed, measurements.own_size
    refused = [trial.batch_size for trial in failed if trial.outcome == "out_of_memory"]
    if own is None or not refused or min(refused) > own:
        return None
    return min(measurements.sizes_that_ran, default=1)


def next_cap(cap: int | None) -> int | None:
    """The next smaller size after memory was refused at `cap`; `None` where there is none."""
    return next((size for size in BATCH_CAPS if cap is None or size < cap), None)
