"""The answer in one line, for the log of a job: `advise --line`."""

from __future__ import annotations

from ..advisor.gpu_memory.context import MOST_CONTEXT_BYTES
from ..advisor.gpu_memory.mig import fitting_slice
from ..records import Advice, RunRecord
from ..reports.words.wording import clean


def answer_line(record: RunRecord, advice: Advice) -> str:
    """Says in one line what to use, what limits the step, and the GPU slice that would do."""
    limit = advice.verdict.limit
    words = [advice.headline.rstrip(".")]
    if limit != "cannot tell":
        words.append(f"limit: {limit}")
    part = slice_of(record, advice)
    if part is not None:
        words.append(f"fits {part} (memory alone; fewer cores make it slower)")
    return clean(f"batchadvisor: {'; '.join(words)}")


def slice_of(record: RunRecord, advice: Advice) -> str | None:
    """The smallest MIG slice of the GPU that holds the recommended size; `None` where unknown."""
    device, choice = record.device, advice.recommended
    if device is None or device.kind != "cuda" or choice is None:
        return None
    trials = [trial for trial in record.trials if trial.batch_size == choice.batch_size]
    needs = [
        max(trial.memory.peak_bytes + MOST_CONTEXT_BYTES, trial.memory.process_bytes or 0)
        for trial in trials
        if trial.memory is not None
    ]
    return fitting_slice(device.name, device.total_bytes, max(needs)) if needs else None
