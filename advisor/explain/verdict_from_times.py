"""What limits a step by its times: on a CPU, and on a GPU without a trace."""

from __future__ import annotations

from typing import NamedTuple

from ...records import Evidence, Limit, Profile, Verdict
from ..measured.scaling import Scaling
from ..measured.thresholds import (
    HOST_SHARE,
    IDLE_BUSY_PCT,
    INPUT_SHARE,
    LONG_OPERATOR_S,
    LOSS_SHARE,
    OPERATORS_PCT,
    OUTSIDE_SHARE,
    SATURATED_GAIN,
    SATURATED_SHARE,
)
from .remedies import ONLY_HELD_UP, UNSURE, UNTIMED, Workers, remedy_of


def by_times(
    profile: Profile | None,
    wait: float | None,
    scaling: Scaling,
    workers: Workers,
) -> Verdict:
    """Finds what limits a step.

    Args:
        profile: what a trace showed, operators of a CPU for example.
        wait: share of the step spent waiting for the DataLoader.
        scaling: what other sizes say.
        workers: that load meanwhile.
    """
    if wait is not None and wait >= INPUT_SHARE:
        return _input(wait, workers)
    rule = _host(profile, scaling)
    if rule is None and _flat(scaling):
        if wait is not None and wait >= LOSS_SHARE:
            return _input(wait, workers, LOSS_SHARE)
        rule = _Rule("saturated", "a larger batch takes proportionally longer")
    rule = rule or _rising(scaling) or _computing(profile, scaling) or _open(scaling)
    limit, message, remedy = rule
    return Verdict(
        limit=limit,
        message=message,
        evidence=_evidence(profile, wait, scaling),
        remedy=remedy or remedy_of(limit, profile, workers),
    )


class _Rule(NamedTuple):
    """A rule that applies; without a remedy of its own it takes that of its limit."""

    limit: Limit
    message: str
    remedy: str = ""


def _host(profile: Profile | None, scaling: Scaling) -> _Rule | None:
    outside = _outside(profile)
    if outside is not None and outside >= OUTSIDE_SHARE:
        return _Rule(
            "host",
            f"for {outside:.0%} of the step Python runs, and neither an operator nor the loader",
            "find that code with a Python profiler: logging, conversions, sleeps; a larger batch "
            "runs it less often.",
        )
    fixed = scaling.fixed_share
    # A GPU computes while the host launches: a step takes the longer of both, and not their sum.
    # Where the next size seems to gain nothing, the host's part no longer shows: it is not blamed,
    # sure or not.
    hidden = scaling.gain is not None and scaling.gain < SATURATED_GAIN
    if fixed is not None and not hidden and (scaling.fixed_low or 0.0) >= HOST_SHARE:
        return _Rule(
            "host",
            f"{fixed:.0%} of the step is a cost per step that the batch does not change (Python, "
            "launches, the optimizer)",
        )
    busy = profile.busy_pct if profile is not None else None
    if busy is not None and busy < IDLE_BUSY_PCT:
        return _Rule(
            "host",
            f"the device is busy for {busy:.0f}% of the profiled window only",
            "look at the trace for synchronising calls (.item(), .cpu()) and small kernels.",
        )
    return None


def _rising(scaling: Scaling) -> _Rule | None:
    if scaling.fixed_share is not None or not scaling.pays:
        return None
    return _Rule("host", "throughput still rises with the batch here")


def _computing(profile: Profile | None, scaling: Scaling) -> _Rule | None:
    if not _computes(profile) or (scaling.fixed_share or 0.0) >= SATURATED_SHARE:
        return None
    remedy = UNSURE
    if scaling.gain is None:
        remedy = ONLY_HELD_UP if scaling.held_up else UNTIMED
    return _Rule(
        "saturated",
        f"the CPU is inside operators for {_operators(profile):.0f}% of the step, and their calls "
        "are long",
        remedy if scaling.fixed_share is None else "",
    )


def _open(scaling: Scaling) -> _Rule:
    nothing = "no share of the step stands out"
    if scaling.contradicted:
        return _Rule(
            "cannot tell",
            f"{nothing}, and a larger batch took less time than a smaller one: the machine was "
            "disturbed meanwhile",
        )
    if scaling.turned_down:
        return _Rule(
            "cannot tell",
            f"{nothing}, and the script took no other size that was tried",
            "let the script take another size; its own words on each stand with the sizes.",
        )
    if scaling.gain is None and scaling.fixed_share is None:
        return _Rule(
            "cannot tell",
            f"{nothing}, and one size alone does not show what a larger one would do",
            "let `batchadvisor run` time more sizes (a larger --budget).",
        )
    return _Rule(
        "cannot tell",
        f"{nothing}, and by the timed sizes a larger batch gains neither clearly much nor clearly "
        "nothing",
    )


def _evidence(
    profile: Profile | None, wait: float | None, scaling: Scaling
) -> tuple[Evidence, ...]:
    """The numbers that are known, each with its threshold."""
    busy = profile.busy_pct if profile is not None else None
    known = (
        ("share of the step waiting for the loader", wait, INPUT_SHARE),
        ("fixed share of the step", scaling.fixed_share, HOST_SHARE),
        ("marginal gain", scaling.gain, SATURATED_GAIN),
        ("device busy (%)", busy, IDLE_BUSY_PCT),
        ("share outside operators and the loader", _outside(profile), OUTSIDE_SHARE),
    )
    return tuple(
        Evidence(metric=metric, value=round(value, 3), threshold=threshold)
        for metric, value, threshold in known
        if value is not None
    )


def _flat(scaling: Scaling) -> bool:
    """Whether a larger batch buys nothing, by the slope or by the fixed part."""
    if scaling.gain_high is not None and scaling.gain_high < SATURATED_GAIN:
        return True
    return scaling.fixed_high is not None and scaling.fixed_high < SATURATED_SHARE


def _outside(profile: Profile | None) -> float | None:
    """Share of the window in neither an operator nor the loader, on a CPU."""
    if profile is None or profile.busy_pct is not None:
        return None
    operators, wait = profile.operators_pct, profile.input_wait_pct
    if not operators or wait is None:
        return None
    # Operators that load data lie inside the wait; what is counted twice is not outside.
    return max(0.0, 1 - (operators + wait) / 100)


def _operators(profile: Profile | None) -> float:
    return (profile.operators_pct or 0.0) if profile is not None else 0.0


def _computes(profile: Profile | None) -> bool:
    """Whether a CPU is inside operators nearly always, and their calls are long."""
    if profile is None or profile.busy_pct is not None or _operators(profile) < OPERATORS_PCT:
        return False
    total = sum(operator.self_s for operator in profile.operators)
    if total <= 0:
        return False
    mean_s = (
        sum(operator.self_s**2 / max(operator.num_calls, 1) for operator in profile.operators)
        / total
    )
    return mean_s >= LONG_OPERATOR_S


def _input(wait: float, workers: Workers, threshold: float = INPUT_SHARE) -> Verdict:
    how = ""
    if workers.number is not None:
        how = f": {workers.number} workers do not keep up"
    if workers.number == 1:
        how = ": its worker does not keep up"
    if workers.number == 0:
        how = ": it loads in the training process (num_workers=0)"
    share = Evidence(
        metric="share of the step waiting for the loader",
        value=round(wait, 3),
        threshold=threshold,
    )
    return Verdict(
        limit="input",
        message=f"the step waits {wait:.0%} of its time for the DataLoader{how}",
        evidence=(share,),
        remedy=remedy_of("input", None, workers._replace(wait=wait)),
    )
