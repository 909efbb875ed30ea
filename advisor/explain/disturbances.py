"""What disturbed the measurement, in words: how many steps, how long, and what took the time."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...records import Cause, Evidence, Finding, Trial
from ...records.quality import ANOTHER_HOUR
from ...units import format_seconds, format_variables
from ..measured.measurements import Measurements

STALL_SHARE = 0.01
"""Stalls that take less than this share of the timed steps' time are not worth a word."""
UNNAMED = "the kernel counted waiting for a core in each step"
"""What is said of a load that nothing names."""
OWN_SHARE = 0.05
"""Slow steps of the script's own that make an epoch this much longer are said."""


def worst(trials: Iterable[Trial]) -> list[Cause]:
    """Each kind of cause once, at its worst."""
    at_worst: dict[str, Cause] = {}
    for trial in trials:
        for cause in trial.causes:
            known = at_worst.get(cause.kind)
            if known is None or (cause.cores or 0.0) > (known.cores or 0.0):
                at_worst[cause.kind] = cause
    return list(at_worst.values())


def _disturbed(measurements: Measurements) -> list[Trial]:
    return [
        trial
        for trial in measurements.record.trials
        if trial.quality is not None and trial.quality.num_disturbed
    ]


def said(measurements: Measurements) -> str:
    """What took the time, as a clause; empty where nothing is known."""
    trials = _disturbed(measurements)
    return "; ".join(cause.message for cause in worst(trials or measurements.record.trials))


def remedy(measurements: Measurements) -> str:
    """What to do about it."""
    causes = worst(_disturbed(measurements))
    remedies = remedy_against(causes)
    if remedies:
        waits = any(cause.kind == "hypervisor" for cause in causes)
        more = " A larger --budget lets it wait for undisturbed steps." if waits else ""
        return f"{remedies}{more}"
    if any(trial.contended for trial in measurements.timed):  # more of such steps say no more
        return "Run again when the machine is free."
    return "Run again with a larger --budget."


def remedy_against(causes: Iterable[Cause]) -> str:
    """What to do about causes, in sentences; empty where nobody knows."""
    remedies = [cause.remedy for cause in causes if cause.remedy]
    later = sum(ANOTHER_HOUR in text for text in remedies) > 1  # said once
    texts = (text.removesuffix(f", or {ANOTHER_HOUR}") if later else text for text in remedies)
    return " ".join(dict.fromkeys(map(_sentence, texts)))


def variables_of(measurements: Measurements) -> str:
    """Variables that the script's processes had since others used its cores: `A=1 B=2`."""
    return format_variables(measurements.record.variables or {})


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "."


def _stalls(measurements: Measurements) -> list[Finding]:
    """Steps that something outside the script held up."""
    trials = _disturbed(measurements)
    qualities = [trial.quality for trial in trials if trial.quality is not None]
    every = [trial.quality for trial in measurements.record.trials if trial.quality is not None]
    num = sum(quality.num_disturbed for quality in qualities)
    stalled_s = sum(quality.stalled_s for quality in qualities)
    spent_s = sum(
        trial.step_s.median * trial.quality.num_steps
        for trial in measurements.record.trials
        if trial.quality is not None and trial.step_s is not None
    )
    contended = sorted({trial.batch_size for trial in measurements.timed if trial.contended})
    if not num or not (contended or stalled_s >= STALL_SHARE * (spent_s + stalled_s)):
        return []
    total = sum(quality.num_steps for quality in every)
    longest = max(quality.longest_stall_s for quality in qualities)
    why = said(measurements)
    text = (
        f"{num} of {total} timed steps were held up, {format_seconds(stalled_s)} in all, "
        f"{format_seconds(longest)} at most{': ' + why if why else ''}"
    )
    if contended:
        sizes = ", ".join(map(str, contended))
        at = measurements.named(sizes)
        text += f"; at {at} too few steps were clean, and the first quartile stands"
    return [
        Finding(
            rule="steps.disturbed",
            severity="warning" if contended else "info",
            message=text,
            evidence=(
                Evidence(metric="disturbed steps", value=num),
                Evidence(metric="stalled, s", value=round(stalled_s, 3)),
            ),
            remedy=remedy(measurements),
        )
    ]


def _own_slow_steps(measurements: Measurements) -> list[Finding]:
    """Steps that the script itself makes longer now and then; an epoch includes them."""
    findings: list[Finding] = []
    for trial in measurements.timed[-1:]:
        quality, step_s = trial.quality, trial.step_s
        if quality is None or step_s is None or not (quality.num_slow and quality.num_steps):
            continue
        share = quality.slow_s / (step_s.median * quality.num_steps)
        if share < OWN_SHARE:
            continue
        findings.append(
            Finding(
                rule="steps.slow",
                severity="info",
                message=f"{quality.num_slow} of {quality.num_steps} steps at "
                f"{measurements.named(trial.batch_size)} took more than twice the usual time with "
                "nothing outside the script to show for it (logging, evaluation, saving?); they "
                f"make the steps {share:.0%} longer on average, which samples/s leaves out",
                evidence=(Evidence(metric="share of the time", value=round(share, 3)),),
            )
        )
    return findings


def _collections(measurements: Measurements) -> list[Finding]:
    """Python's garbage collector, where it takes a good part of the steps."""
    shares = [
        (trial.quality.collected_s / trial.step_s.median, trial)
        for trial in measurements.timed
        if trial.quality is not None and trial.step_s is not None and trial.quality.num_collections
    ]
    share, trial = max(shares, key=lambda pair: pair[0], default=(0.0, None))
    if trial is None or trial.quality is None or share < OWN_SHARE:
        return []
    quality = trial.quality
    each_s = quality.collected_s * quality.num_steps / quality.num_collections
    times = "once" if quality.num_collections == 1 else f"{quality.num_collections} times"
    return [
        Finding(
            rule="steps.garbage",
            severity="info",
            message=f"Python's garbage collector walked all objects of the process {times} in "
            f"{quality.num_steps} steps at {measurements.named(trial.batch_size)}, "
            f"{format_seconds(each_s)} each: {share:.0%} of the time",
            evidence=(Evidence(metric="share of the time", value=round(share, 3)),),
            remedy="call gc.freeze() before the training loop: what was made until then is not "
            "walked again.",
        )
    ]


def _waiting_threads(measurements: Measurements) -> list[Finding]:
    """How the script's threads waited, where others used the cores when the run began."""
    said = variables_of(measurements)
    if not said:
        return []
    message = (
        "other programs used the cores when the run began, so the script's threads gave theirs "
        f"away while they waited ({said}): threads that spin would have told little of a size"
    )
    timed = measurements.timed
    others = any(cause.kind == "processes" for trial in timed for cause in trial.causes)
    if others or any(trial.contended for trial in timed):
        remedy = f"set {said} in training too while others use the cores: all times are with it."
        return [Finding(rule="threads.waiting", severity="info", message=message, remedy=remedy)]
    message += "; later nothing disturbed a step, and without it small sizes may be faster"
    remedy = "run again, now that the cores are free."
    return [Finding(rule="threads.waiting", severity="warning", message=message, remedy=remedy)]


DISTURBANCE_RULES: tuple[Callable[[Measurements], list[Finding]], ...] = (
    _stalls,
    _own_slow_steps,
    _collections,
    _waiting_threads,
)
