"""The effect of the recommended size on the training, in words."""

from __future__ import annotations

from ....records import Advice, Choice, LearningRate, Training
from ....units import format_count
from ...words.wording import measured_seconds, number, plural, why_unknown

STEP = "optimizer step"


def training_rows(advice: Advice, training: Training) -> list[tuple[str, str]]:
    """Label and text of what changes."""
    rows = [
        ("effective batch", _effective(training)),
        ("steps per epoch", _steps(advice, training)),
        ("epoch time", _epoch(advice)),
        ("accumulation", _accumulation(training)),
        *(("learning rate", rate) for rate in _learning_rates(training)),
    ]
    return [(label, value) for label, value in rows if value]


def _effective(training: Training) -> str:
    before, after = training.effective_before, training.effective_after
    each = training.steps_per_batch
    axis = training.axis if training.axis == "samples" else f"{training.axis} at most"
    # Each of several steps may see a part of the samples: what it sees nobody can tell.
    per, rest = ("batch", f"; {each} optimizer steps on each") if each > 1 else (STEP, "")
    if before == after:
        return f"{before} {axis} per {per}, unchanged{rest}"
    return f"{before} → {after} {axis} per {per}{rest}"


def _steps(advice: Advice, training: Training) -> str:
    before, after = training.steps_before, training.steps_after
    if before is None or after is None:
        if training.axis != "samples":
            return "not known: the lengths of the samples decide how many batches there are"
        why = why_unknown(advice, "epoch", "nothing says how long an epoch is")
        return f"not known: {why}"
    told = f"{'at most ' if training.steps_at_most else ''}{format_count(before)}"
    return f"{told}, unchanged" if before == after else f"{told} → {format_count(after)}"


def _epoch(advice: Advice) -> str:
    before, after = _epoch_of(advice.native), _epoch_of(advice.recommended)
    if after is None:
        return f"not known: {why_unknown(advice, 'epoch_s', 'no epoch length or no timed step')}"
    same = advice.native is not None and advice.native == advice.recommended
    if same:
        return f"{after}, training steps only"
    if before is None:
        return f"{after}, training steps only; the script's own size was not timed"
    return f"{before} → {after}, training steps only"


def _epoch_of(choice: Choice | None) -> str | None:
    return measured_seconds(choice.epoch_s) if choice is not None and choice.epoch_s else None


def _accumulation(training: Training) -> str:
    micro, keep = training.micro_batches, training.keep_accumulation
    now = "" if micro == 1 else f"{micro} micro-batches per optimizer step"
    if training.effective_before == training.effective_after:
        return now
    batch = training.effective_after // micro
    if batch > training.effective_before:
        kept = (
            f"one batch of {batch} exceeds the old effective batch of {training.effective_before}"
        )
    elif keep is not None:
        wanted = plural(keep, "micro-batch", "micro-batches")
        kept = f"{wanted} would keep the effective batch of {training.effective_before}"
    else:
        kept = (
            f"no number of micro-batches keeps the effective batch of {training.effective_before}"
        )
    return f"{now}; {kept}" if now else kept


def _learning_rates(training: Training) -> list[str]:
    rates = training.learning_rates
    if not rates:
        return ["not known: no optimizer was seen"]
    if len(rates) == 1:
        return [_learning_rate(rates[0])]
    return [f"{rate.optimizer}: {_learning_rate(rate)}" for rate in rates]


def _learning_rate(rate: LearningRate) -> str:
    before, after = rate.before, rate.suggested
    source = f" ({rate.rule_source})" if rate.rule_source else ""
    if before is None:
        return f"not known; {rate.rule}{source}"
    if after is None or after == before:
        return f"{number(before)}; {rate.rule}{source}"
    return f"{number(before)} → {after:.2g} as a suggestion: {rate.rule}{source}"
