"""What else the user should know. Each rule looks at one thing and says it with its evidence."""

from __future__ import annotations

import re
from collections.abc import Callable

from ...records import Evidence, Finding, Tail, TailCheck, worst_first
from ...units import format_bytes, format_seconds
from ..choose.finalists import DISAGREEMENT, disagreement, fresh_over_search
from ..choose.knee import fastest, never_met
from ..measured.graph_pools import refused_beside_others_only
from ..measured.measurements import Measurements
from ..measured.scaling import slower_than_larger
from ..measured.sizes import MIN_STEPS_AN_EPOCH, stopped_by_steps
from ..measured.thresholds import BUDGET_SPENT
from ..measured.trials import says_nothing
from . import batch_findings, creep_findings, device_findings, disturbances, token_findings
from .known_failures import failure_of, not_the_size
from .ratios import rate_name
from .remedies import no_size_fits
from .tail_findings import tail_findings

_NUMBERS = re.compile(r"[0-9]+(?:\.[0-9]+)?")
NAMED_FALL = 1.15
"""A step that takes this many times as long as one of a larger size, measured twice, is named."""
WIDE_INTERVAL = 0.10
"""Relative half-width of a step time from which on the machine is called noisy."""


def findings_of(
    measurements: Measurements, batch_size: int | None, tail: Tail | None, check: TailCheck | None
) -> tuple[Finding, ...]:
    """All findings, errors first."""
    findings: list[Finding] = []
    if batch_size is not None:
        findings += tail_findings(measurements, batch_size, tail, check)
        findings += _noise(measurements, batch_size)
        findings += batch_findings.far_from_own(measurements, batch_size)
        findings += batch_findings.beyond_index(measurements, batch_size)
        findings += _disagreement(measurements, batch_size)
        findings += token_findings.padding(measurements, batch_size)
        findings += device_findings.workers_start(measurements, batch_size)
        findings += device_findings.page_faults(measurements, batch_size)
        findings += device_findings.retries(measurements, batch_size)
        findings += device_findings.retries_above(measurements, batch_size)
        findings += device_findings.scattered(measurements, batch_size)
        findings += device_findings.graph_pools(measurements, batch_size)
    devices = (
        device_findings.settings,
        device_findings.unseen,
        device_findings.shared_core,
        creep_findings.creep,
    )
    for rule in (*_RULES, *batch_findings.BATCH_RULES, *disturbances.DISTURBANCE_RULES, *devices):
        findings += rule(measurements)
    return worst_first(findings)


def _noise(measurements: Measurements, batch_size: int) -> list[Finding]:
    trials = [trial for trial in measurements.ran if trial.batch_size == batch_size]
    compared = measurements.best_timed.get(batch_size)  # in turn, where it took some
    known = [trial.step_s for trial in (*trials, compared) if trial and trial.step_s is not None]
    narrowest = min(known, key=lambda step_s: step_s.relative_half_width, default=None)
    if narrowest is None or narrowest.relative_half_width < WIDE_INTERVAL:
        return []
    width = narrowest.relative_half_width
    vary = f"vary by ±{width:.0%}"
    if says_nothing(narrowest):
        vary = f"lie between {format_seconds(narrowest.low)} and {format_seconds(narrowest.high)}"
    return [
        Finding(
            rule="noise",
            severity="warning",
            message=f"step times {vary} at the recommended size",
            evidence=(Evidence(metric="half-width", value=width, threshold=WIDE_INTERVAL),),
            remedy="measure on a quieter machine, or with a larger --budget.",
        )
    ]


def _disagreement(measurements: Measurements, batch_size: int) -> list[Finding]:
    """The confirmation says something else than the search, beyond both intervals."""
    ratio = disagreement(measurements, batch_size)
    if ratio is None:
        return []
    own = measurements.own_size
    beside_own = ""
    if own is not None and own != batch_size and fresh_over_search(measurements, own) is not None:
        beside_own = f", counted beside what the script's own {own} gained or lost between them"
    return [
        Finding(
            rule="confirm.differs",
            severity="warning",
            message=f"the fresh process gave x{ratio:.2f} the {rate_name(measurements)} that the "
            f"search saw at {measurements.named(batch_size)}{beside_own}",
            evidence=(Evidence(metric="ratio", value=round(ratio, 3), threshold=DISAGREEMENT),),
            remedy="something changed in between: run again, on a quieter machine.",
        )
    ]


def _refused(measurements: Measurements) -> list[Finding]:
    sizes = sorted(_sizes_refused(measurements))
    if not sizes:
        return []
    record = measurements.record
    message = f"out of memory at {', '.join(map(str, sizes))}"
    if record.device is not None:
        message += f" (limit {format_bytes(record.device.capacity_bytes)})"
    doubtful = [size for size in sizes if refused_beside_others_only(record.trials, size)]
    if doubtful:
        message += (
            f"; {', '.join(map(str, doubtful))} beside captured graphs of other sizes, and there "
            "was no time to try without them"
        )
    return [
        Finding(
            rule="memory.refused",
            severity="info",
            message=message,
            evidence=tuple(Evidence(metric="batch size", value=size) for size in sizes),
        )
    ]


def _sizes_refused(measurements: Measurements) -> set[int]:
    return {
        failure.batch_size for failure in measurements.failed if failure.outcome == "out_of_memory"
    }


def _nothing_fits(measurements: Measurements) -> list[Finding]:
    """The smallest size that was tried needs too much memory, so that none is left."""
    refused = _sizes_refused(measurements)
    tried = refused | measurements.sizes_that_ran
    record = measurements.record
    if record.observed is not None or not tried or any(map(measurements.usable, tried)):
        return []
    smallest = min(tried)
    if smallest not in refused and not measurements.over_target(smallest):
        return []
    limited = record.device is not None and record.device.limit_bytes is not None
    by_lengths = smallest not in refused and measurements.fits_but_for_lengths(smallest)
    return [
        Finding(
            rule="memory.nothing_fits",
            severity="error",
            message=f"not even {measurements.named(smallest)} fits"
            + (", with the longest batches of an epoch" if by_lengths else ""),
            evidence=(Evidence(metric="batch size", value=smallest),),
            remedy=no_size_fits(measurements.goal, smallest, limited=limited),
        )
    ]


def _out_of_budget(measurements: Measurements) -> list[Finding]:
    """The budget ended the search, so that what was not tried may be better."""
    if measurements.record.stop_reason != BUDGET_SPENT or measurements.goal.sizes:
        return []
    sizes = sorted(measurements.sizes_that_ran)
    if not sizes:  # there is no answer that others could be better than
        return []
    tried = ", ".join(map(str, sizes))
    return [
        Finding(
            rule="search.cut_short",
            severity="warning",
            message=f"the budget ended the search: other sizes than {tried} may be better",
            evidence=(Evidence(metric="budget, s", value=measurements.goal.budget_s),),
            remedy="ask again with a larger budget."
            if measurements.script.in_this_process
            else "continue with --resume and a larger --budget.",
        )
    ]


def _ended(measurements: Measurements) -> list[Finding]:
    return [
        Finding(
            rule="trial.script_ended",
            severity="warning",
            message=f"{failure.detail}, before the window at "
            f"{measurements.named(failure.batch_size)} was complete",
            evidence=(Evidence(metric="batch size", value=failure.batch_size),),
            remedy="let it train longer for this run: more epochs, or a larger step limit.",
        )
        for failure in measurements.failed
        if failure.outcome == "script_ended"
    ]


def _broken(measurements: Measurements) -> list[Finding]:
    bad = measurements.smallest_bad
    smallest = min(measurements.sizes_that_ran, default=None)
    largest = max(measurements.sizes_that_ran, default=0)
    multiples = measurements.multiples.sure
    log = "its output and traceback are in the run's log"
    findings = []
    for failure in measurements.failed:
        if failure.outcome in ("out_of_memory", "script_ended"):
            continue
        if multiples.explain(failure):
            continue  # said with the multiples that run
        smaller_ran = smallest is not None and smallest < failure.batch_size
        known = failure_of(failure, measurements.record.device, smaller_ran=smaller_ran)
        because = f" ({known.what})" if known is not None else ""
        bounds = bad is not None and largest < bad <= failure.batch_size
        left_out = "; larger sizes were left out" if bounds else ""
        findings.append(
            Finding(
                rule=f"trial.{failure.outcome}",
                severity="warning",
                message=f"{measurements.named(failure.batch_size)} did not run: "
                f"{failure.detail}{because}",
                evidence=(Evidence(metric="batch size", value=failure.batch_size),),
                remedy=f"{log}{left_out}. {known.remedy if known is not None else ''}".strip(),
            )
        )
    return findings


def _doubts(measurements: Measurements) -> list[Finding]:
    record = measurements.record
    of_trials = [text for trial in record.trials for text in trial.doubts]
    texts = [*record.doubts, *of_trials]
    kinds: dict[str, list[str]] = {}
    for text in texts:  # the same doubt of many trials is said once, at its worst
        kinds.setdefault(_NUMBERS.split(text)[0], []).append(text)
    # Those of a callback are of its loop, its clock or its files, those of a run as a whole of its
    # script: nobody else's work is at fault.
    at_fault = () if record.observed is not None else of_trials
    return [
        Finding(
            rule="doubt",
            severity="warning",
            message=max(same, key=_numbers)
            + (f" (the worst of {len(same)} trials)" if len(same) > 1 else ""),
            remedy="run again when the machine is free." if same[0] in at_fault else "",
        )
        for same in kinds.values()
    ]


def _numbers(text: str) -> list[float]:
    return [float(number) for number in _NUMBERS.findall(text)]


def _bounded(measurements: Measurements) -> list[Finding]:
    bound = stopped_by_steps(measurements)
    if bound is None:
        return []
    return [
        Finding(
            rule="bound.steps",
            severity="info",
            message=f"sizes above {bound} were not tried: an epoch would have fewer than "
            f"{MIN_STEPS_AN_EPOCH} optimizer steps",
            evidence=(Evidence(metric="largest size", value=bound),),
            remedy="--max-batch lifts this bound.",
        )
    ]


def _falling(measurements: Measurements) -> list[Finding]:
    sizes = measurements.searched
    slower = slower_than_larger(sizes, NAMED_FALL)
    if not slower:
        return []
    listed = ", ".join(map(str, slower))
    return [
        Finding(
            rule="time.falls",
            severity="warning",
            message=f"a step at {measurements.named(listed)} took longer than one at a larger size",
            evidence=tuple(Evidence(metric="batch size", value=size) for size in slower),
            remedy="something else used the machine, or the kernels changed; do not compare with "
            "these rows.",
        )
    ]


def _not_compared(measurements: Measurements) -> list[Finding]:
    """Sizes above the fastest of the table that are not called the fastest."""
    best = fastest(measurements)
    sizes = [] if best is None else never_met(measurements, best)
    if not sizes:
        return []
    listed = ", ".join(map(str, sizes))
    return [
        Finding(
            rule="turns.left_out",
            severity="info",
            message=f"{measurements.named(listed)} took no turns with {best}, and "
            "may be faster: sizes that were timed at different moments are not compared",
            evidence=tuple(Evidence(metric="batch size", value=size) for size in sizes),
            remedy="run again with a larger --budget, which lets longer steps take turns.",
        )
    ]


def _damaged(measurements: Measurements) -> list[Finding]:
    """Traces of which a part could not be read; their shares are of the rest."""
    losses = {
        trial.batch_size: trial.profile.losses
        for trial in measurements.record.trials
        if trial.profile is not None and trial.profile.losses
    }
    return [
        Finding(
            rule="trace.damaged",
            severity="warning",
            message=f"at {measurements.named(size)} {text}",
            evidence=(Evidence(metric="batch size", value=size),),
            remedy="the shares of the time at this size are those of what could be read.",
        )
        for size, text in losses.items()
    ]


def _left_out(measurements: Measurements) -> list[Finding]:
    """Names the events of a trace that were left out as impossible; its shares are of the rest."""
    return [
        Finding(
            rule="trace.left_out",
            severity="info",
            message=f"of the trace at {measurements.named(trial.batch_size)} was left out: "
            f"{'; '.join(trial.profile.left_out)}",
            evidence=(Evidence(metric="batch size", value=trial.batch_size),),
            remedy="the shares of the time at this size are those of the rest.",
        )
        for trial in measurements.record.trials
        if trial.profile is not None and trial.profile.left_out
    ]


_RULES: tuple[Callable[[Measurements], list[Finding]], ...] = (
    _refused,
    not_the_size,
    _nothing_fits,
    _broken,
    _ended,
    _out_of_budget,
    _doubts,
    _falling,
    _not_compared,
    _bounded,
    _damaged,
    _left_out,
)
