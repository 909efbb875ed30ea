"""What else the user should know. Each rule looks at one thing and says it with its evidence."""

from __future__ import annotations

import re
from collections.abc import Callable

from ..records import Evidence, Finding, RunRecord, Tail, TailCheck
from ..units import format_bytes
from . import batch_findings, device_findings, disturbances
from .confirm import DISAGREEMENT, disagreement
from .cost import BUDGET_SPENT
from .facts import failed, over_target, ran, searched, smallest_bad, usable
from .graph_pools import refused_beside_others_only
from .knee import fastest, uncompared
from .known_failures import known_failure
from .remedies import nothing_fits
from .sizes import MIN_STEPS_AN_EPOCH, bound_by_steps
from .suspects import slower_than_larger
from .tail_findings import tail_findings

_NUMBERS = re.compile(r"[0-9]+(?:\.[0-9]+)?")
FALLING = 1.15
"""A step that takes this many times as long as one of a larger size, measured twice, is named."""
WIDE_INTERVAL = 0.10
"""Relative half-width of a step time from which on the machine is called noisy."""


def findings_of(
    record: RunRecord, batch_size: int | None, tail: Tail | None, check: TailCheck | None
) -> tuple[Finding, ...]:
    """All findings, errors first."""
    found: list[Finding] = []
    if batch_size is not None:
        found += tail_findings(record, batch_size, tail, check)
        found += _noise(record, batch_size)
        found += _disagreement(record, batch_size)
        found += device_findings.retries(record, batch_size)
        found += device_findings.scattered(record, batch_size)
        found += device_findings.graph_pools(record, batch_size)
    devices = (device_findings.settings, device_findings.unseen)
    for rule in (*_RULES, *batch_findings.RULES, *disturbances.RULES, *devices):
        found += rule(record)
    return by_severity(found)


def by_severity(found: list[Finding]) -> tuple[Finding, ...]:
    """Errors first, information last."""
    order = {"error": 0, "warning": 1, "info": 2}
    return tuple(sorted(found, key=lambda one: order[one.severity]))


def _noise(record: RunRecord, batch_size: int) -> list[Finding]:
    widths = [
        one.step_s.relative_half_width
        for one in ran(record)
        if one.batch_size == batch_size and one.step_s is not None
    ]
    if not widths or min(widths) < WIDE_INTERVAL:
        return []
    return [
        Finding(
            rule="noise",
            severity="warning",
            message=f"step times vary by ±{min(widths):.0%} at the recommended size",
            evidence=(Evidence(metric="half-width", value=min(widths), threshold=WIDE_INTERVAL),),
            remedy="measure on a quieter machine, or with a larger --budget.",
        )
    ]


def _disagreement(record: RunRecord, batch_size: int) -> list[Finding]:
    """The confirmation says something else than the search, beyond both intervals."""
    ratio = disagreement(record, batch_size)
    if ratio is None:
        return []
    return [
        Finding(
            rule="confirm.differs",
            severity="warning",
            message=f"the fresh process gave x{ratio:.2f} the samples per second that the search "
            f"saw at batch {batch_size}",
            evidence=(Evidence(metric="ratio", value=round(ratio, 3), threshold=DISAGREEMENT),),
            remedy="something changed in between: run again, on a quieter machine.",
        )
    ]


def _refused(record: RunRecord) -> list[Finding]:
    sizes = sorted({one.batch_size for one in failed(record) if one.outcome == "out_of_memory"})
    if not sizes:
        return []
    limit = record.device.capacity_bytes if record.device is not None else 0
    message = f"out of memory at {', '.join(map(str, sizes))} (limit {format_bytes(limit)})"
    doubtful = [one for one in sizes if refused_beside_others_only(record, one)]
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
            evidence=tuple(Evidence(metric="batch size", value=one) for one in sizes),
        )
    ]


def _nothing_fits(record: RunRecord) -> list[Finding]:
    """The smallest size that was tried needs too much memory, so that none is left."""
    refused = {one.batch_size for one in failed(record) if one.outcome == "out_of_memory"}
    tried = refused | {one.batch_size for one in ran(record)}
    if record.observed is not None or not tried or any(usable(record, one) for one in tried):
        return []
    smallest = min(tried)
    if smallest not in refused and not over_target(record, smallest):
        return []
    limited = record.device is not None and record.device.limit_bytes is not None
    return [
        Finding(
            rule="memory.nothing_fits",
            severity="error",
            message=f"not even batch {smallest} fits",
            evidence=(Evidence(metric="batch size", value=smallest),),
            remedy=nothing_fits(limited=limited)
            if smallest == 1
            else "start with smaller sizes: --start 1.",
        )
    ]


def _out_of_budget(record: RunRecord) -> list[Finding]:
    """The budget ended the search, so that what was not tried may be better."""
    if record.stop_reason != BUDGET_SPENT or record.goal.sizes:
        return []
    sizes = sorted({one.batch_size for one in ran(record)})
    tried = ", ".join(map(str, sizes))
    live = record.discovery is not None and record.discovery.door == "live"
    return [
        Finding(
            rule="search.cut_short",
            severity="warning",
            message=f"the budget ended the search: other sizes than {tried} may be better",
            evidence=(Evidence(metric="budget, s", value=record.goal.budget_s),),
            remedy="probe again with a larger budget_s."
            if live
            else "continue with --resume and a larger --budget.",
        )
    ]


def _ended(record: RunRecord) -> list[Finding]:
    return [
        Finding(
            rule="trial.script_ended",
            severity="warning",
            message=f"{one.detail}, before the window at batch {one.batch_size} was complete",
            evidence=(Evidence(metric="batch size", value=one.batch_size),),
            remedy="let it train longer for this run: more epochs, or a larger step limit.",
        )
        for one in failed(record)
        if one.outcome == "script_ended"
    ]


def _broken(record: RunRecord) -> list[Finding]:
    bad = smallest_bad(record)
    smallest = min((one.batch_size for one in ran(record)), default=None)
    largest = max((one.batch_size for one in ran(record)), default=0)
    log = "its output and traceback are in the run's log"
    found = []
    for one in failed(record):
        if one.outcome in ("out_of_memory", "script_ended"):
            continue
        smaller_ran = smallest is not None and smallest < one.batch_size
        known = known_failure(one.detail, smaller_ran=smaller_ran)
        because = f" ({known.what})" if known is not None else ""
        bounds = bad is not None and largest < bad <= one.batch_size
        left_out = "; larger sizes were left out" if bounds else ""
        found.append(
            Finding(
                rule=f"trial.{one.outcome}",
                severity="warning",
                message=f"batch {one.batch_size} did not run: {one.detail}{because}",
                evidence=(Evidence(metric="batch size", value=one.batch_size),),
                remedy=f"{log}{left_out}. {known.remedy if known is not None else ''}".strip(),
            )
        )
    return found


def _doubts(record: RunRecord) -> list[Finding]:
    texts = [*record.doubts, *(text for trial in record.trials for text in trial.doubts)]
    kinds: dict[str, list[str]] = {}
    for text in texts:  # the same doubt of many trials is said once, at its worst
        kinds.setdefault(_NUMBERS.split(text)[0], []).append(text)
    return [
        Finding(
            rule="doubt",
            severity="warning",
            message=max(same, key=_numbers)
            + (f" (the worst of {len(same)} trials)" if len(same) > 1 else ""),
            remedy="run again when the machine is free.",
        )
        for same in kinds.values()
    ]


def _numbers(text: str) -> list[float]:
    return [float(one) for one in _NUMBERS.findall(text)]


def _bounded(record: RunRecord) -> list[Finding]:
    bound = bound_by_steps(record)
    largest = max((one.batch_size for one in record.trials), default=0)
    # Rounding may leave the last size a little below the bound.
    if bound is None or not largest <= bound <= largest * 1.1:
        return []
    if record.goal.keep_effective_batch or record.goal.sizes:
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


def _falling(record: RunRecord) -> list[Finding]:
    sizes = searched(record)
    slower = slower_than_larger(sizes, FALLING)
    if not slower:
        return []
    listed = ", ".join(map(str, slower))
    return [
        Finding(
            rule="time.falls",
            severity="warning",
            message=f"a step at batch {listed} took longer than one at a larger size",
            evidence=tuple(Evidence(metric="batch size", value=one) for one in slower),
            remedy="something else used the machine, or the kernels changed; do not compare with "
            "these rows.",
        )
    ]


def _not_compared(record: RunRecord) -> list[Finding]:
    """Sizes above the fastest of the table that are not called the fastest."""
    sizes = uncompared(record)
    if not sizes:
        return []
    listed = ", ".join(map(str, sizes))
    return [
        Finding(
            rule="turns.left_out",
            severity="info",
            message=f"batch {listed} read faster than {fastest(record)} but did not take turns "
            "with it: the machine may have been faster at that moment",
            evidence=tuple(Evidence(metric="batch size", value=size) for size in sizes),
            remedy="run again with a larger --budget, which lets longer steps take turns.",
        )
    ]


def _damaged(record: RunRecord) -> list[Finding]:
    """Traces of which a part could not be read; their shares are of the rest."""
    losses = {
        one.batch_size: one.profile.losses
        for one in record.trials
        if one.profile is not None and one.profile.losses
    }
    return [
        Finding(
            rule="trace.damaged",
            severity="warning",
            message=f"at batch {size} {text}",
            evidence=(Evidence(metric="batch size", value=size),),
            remedy="the shares of the time at this size are those of what could be read.",
        )
        for size, text in losses.items()
    ]


_RULES: tuple[Callable[[RunRecord], list[Finding]], ...] = (
    _refused,
    _nothing_fits,
    _broken,
    _ended,
    _out_of_budget,
    _doubts,
    _falling,
    _not_compared,
    _bounded,
    _damaged,
)
