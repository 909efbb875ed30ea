"""What limits a job of several ranks, from what limits each of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ...records import Collectives, Evidence, TraceReport, Verdict
from .remedies import remedy_of

COMMUNICATION_SHARE = 0.20
"""Communication that nothing covers, mean of the ranks, from which on it limits the job.

It comes before what each rank waits for on its own: a host that is late on one rank is waited
for by all.
"""
WAITING_SHARE = 0.50
"""Share of the communication that is waiting from which on slow ranks are the cause."""


def job_verdict(reports: Sequence[TraceReport], collectives: Collectives | None) -> Verdict:
    """What limits the job.

    Args:
        reports: one for each rank.
        collectives: how the ranks waited for each other, if that is known.
    """
    exposed = [
        report.profile.exposed_communication_pct / 100
        for report in reports
        if report.profile.exposed_communication_pct is not None
    ]
    mean = sum(exposed) / len(exposed) if exposed else 0.0
    if mean >= COMMUNICATION_SHARE:
        return _communication(reports, collectives, mean)
    limits = Counter(report.verdict.limit for report in reports)
    limit, count = limits.most_common(1)[0]
    typical = next(report for report in reports if report.verdict.limit == limit)
    rows = "ranks" if len({report.rank for report in reports}) == len(reports) else "GPUs"
    whose = f"{count} of {len(reports)} {rows}" if count < len(reports) else "all ranks"
    return Verdict(
        limit=limit,
        message=f"{whose}; on rank {typical.rank}: {typical.verdict.message}",
        evidence=typical.verdict.evidence,
        remedy=typical.verdict.remedy,
        larger_batch=typical.verdict.larger_batch,
        gain_at_most=_smallest_gain(reports),
        contributions=typical.verdict.contributions,
        confidence=typical.verdict.confidence,
    )


def _communication(
    reports: Sequence[TraceReport], collectives: Collectives | None, mean: float
) -> Verdict:
    evidence = [
        Evidence(
            metric="share of the step in communication that nothing covers, mean of the ranks",
            value=round(mean, 3),
            threshold=COMMUNICATION_SHARE,
        )
    ]
    message = f"communication that no computation covers takes {mean:.0%} of the step"
    remedy = remedy_of("communication", reports[0].profile)
    waiting = 0.0
    if collectives is not None:
        waiting = collectives.wait_share
        evidence.append(
            Evidence(
                metric="share of the communication that waits for slower ranks",
                value=round(waiting, 3),
                threshold=WAITING_SHARE,
            )
        )
        message += f"; {waiting:.0%} of the communication is waiting for slower ranks"
        if waiting >= WAITING_SHARE:
            remedy = (
                "make the ranks equally fast: the same work for each, no logging or saving on one "
                "alone; overlapping or shrinking the transfer gains little."
            )
        straggler = _named(reports, collectives)
        if straggler:
            message += f". {straggler}"
    return Verdict(
        limit="communication",
        message=message,
        evidence=tuple(evidence),
        remedy=remedy,
        gain_at_most=_smallest_gain(reports) if waiting < WAITING_SHARE else None,
    )


def _named(reports: Sequence[TraceReport], collectives: Collectives) -> str:
    rank, share = collectives.straggler, collectives.straggler_share
    if rank is None or share is None:
        return ""
    last = next(times.num_last for times in collectives.ranks if times.rank == rank)
    text = (
        f"Rank {rank} is the slow one: last in {last} of {collectives.num_matched} collectives, "
        f"{share:.0%} of the waiting"
    )
    own = next((report for report in reports if report.rank == rank), None)
    return text + (f"; there, {own.verdict.message}" if own is not None else "")


def _smallest_gain(reports: Sequence[TraceReport]) -> float | None:
    gains = [
        report.verdict.gain_at_most for report in reports if report.verdict.gain_at_most is not None
    ]
    return min(gains, default=None)
