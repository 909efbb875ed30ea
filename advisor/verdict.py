"""What limits the step at one size, whether a larger batch helps, and what to do instead.

Ordered rules. Where a trace shows the GPU, its losses decide and the times only bound what a
larger batch can gain. Without one, the times decide: waiting for the loader, the part of the step
that the batch does not change, the slope of the throughput. What the noise does not support is
"cannot tell".
"""

from __future__ import annotations

import msgspec

from ..records import Evidence, Limit, Profile, RunRecord, TimeLaw, Trial, Verdict
from .facts import latest_timed
from .limits import Losses, losses_of, message_of
from .remedies import remedy_of
from .scaling import Scaling, scaling_at

INPUT_SHARE = 0.30
"""Waiting for the loader takes at least this share of the step: input-bound."""
LOSS_SHARE = 0.15
"""What costs less of the step than this does not limit it."""
HOST_SHARE = 0.30
"""A cost per step that the batch does not change takes at least this share: host-bound."""
SATURATED_GAIN = 0.10
"""Marginal gain d ln(samples/s) / d ln(batch) below which a larger batch buys nothing."""
SATURATED_SHARE = 0.15
"""Fixed share of the step, its upper end, below which a larger batch buys nothing."""
PAYING_GAIN = 0.30
"""Marginal gain from which on a larger batch clearly pays."""
IDLE_BUSY_PCT = 70.0
"""A GPU that is busy less than this waits for somebody."""
COMPUTE_SHARE = 0.70
"""Kernels that compute for at least this share of the step, without a loss that stands out."""
FILLED_PCT = 80.0
"""SM efficiency while computing below which the kernels are too small for the GPU."""
HELPFUL_GAIN = 1.10
"""A larger batch that can gain less than this factor does not help."""
OUTSIDE_SHARE = 0.50
"""On a CPU: share of the window in neither an operator nor the loader that is the host's."""
OPERATORS_PCT = 70.0
"""On a CPU: share of the window inside operators from which on it computes."""
LONG_OPERATOR_S = 100e-6
"""Mean self time of a call from which on its dispatch does not matter."""


def verdict_at(record: RunRecord, batch_size: int, law: TimeLaw | None) -> Verdict:
    """What limits the step at `batch_size`."""
    sizes = latest_timed(record)
    trial = sizes.get(batch_size)
    if trial is None or trial.step_s is None:
        return Verdict(limit="cannot tell", message="no step was timed at this size")
    wait = None if trial.input_wait_s is None else input_share(trial)
    workers = record.discovery.primary.num_workers if record.discovery is not None else None
    return verdict_of(
        _profile(record, batch_size, trial),
        wait=wait,
        scaling=scaling_at(record, batch_size, law),
        num_workers=workers,
    )


def verdict_of(
    profile: Profile | None,
    *,
    wait: float | None = None,
    scaling: Scaling | None = None,
    num_workers: int | None = None,
) -> Verdict:
    """What limits a step.

    Args:
        profile: what a trace of it showed.
        wait: share of unprofiled steps spent waiting for the DataLoader.
        scaling: what other sizes say.
        num_workers: of the DataLoader.
    """
    scaling = scaling or Scaling()
    losses = losses_of(profile, wait)
    if wait is None and profile is not None and profile.input_wait_pct is not None:
        wait = profile.input_wait_pct / 100
    if losses is not None:
        found = _by_losses(losses, profile, num_workers)
    else:
        found = _by_times(profile, wait, scaling, num_workers)
    return _with_scaling(found, losses, scaling)


def _by_losses(losses: Losses, profile: Profile | None, num_workers: int | None) -> Verdict:
    """The rules for a GPU that a trace shows."""
    kind, share = losses.largest()
    limit: Limit = "cannot tell"
    evidence = [Evidence(metric="share of the step", value=round(share, 3), threshold=LOSS_SHARE)]
    unfilled = losses.unfilled is not None and losses.compute > 0
    filled = 1 - (losses.unfilled or 0.0) / losses.compute if unfilled else 1.0
    if losses.unexplained > max(share, LOSS_SHARE):
        return Verdict(
            limit="cannot tell",
            message=f"for {losses.unexplained:.0%} of the window nothing ran, and the trace does "
            "not say why",
            contributions=losses.contributions(),
            remedy="profile more steps, with CPU activity.",
        )
    if share >= LOSS_SHARE and share >= (losses.unfilled or 0.0):
        limit = kind
    elif losses.compute >= COMPUTE_SHARE and filled < FILLED_PCT / 100:
        limit = "small kernels"
    elif losses.compute >= COMPUTE_SHARE:
        limit = "saturated"
    if limit in ("small kernels", "saturated"):
        computing = Evidence(
            metric="share of the step that computes",
            value=round(losses.compute, 3),
            threshold=COMPUTE_SHARE,
        )
        evidence = [computing]
        if unfilled:
            evidence.append(
                Evidence(
                    metric="SM efficiency while computing, at most (%)",
                    value=round(100 * filled, 1),
                    threshold=FILLED_PCT,
                )
            )
    if limit == "cannot tell":
        message = "no share of the step stands out"
    else:
        message = message_of(limit, losses)
    return Verdict(
        limit=limit,
        message=message,
        evidence=tuple(evidence),
        remedy=remedy_of(limit, profile, num_workers),
        contributions=losses.contributions(),
        confidence="estimate" if limit in ("synchronisation", "small kernels") else "measured",
    )


def _by_times(
    profile: Profile | None, wait: float | None, scaling: Scaling, num_workers: int | None
) -> Verdict:
    """The rules for a CPU, and for a GPU without a trace."""
    evidence: list[Evidence] = []
    if wait is not None:
        evidence.append(_share("share of the step waiting for the loader", wait, INPUT_SHARE))
        if wait >= INPUT_SHARE:
            return _input(wait, num_workers)
    fixed = scaling.fixed_share
    if fixed is not None:
        evidence.append(_share("fixed share of the step", fixed, HOST_SHARE))
    if scaling.gain is not None:
        evidence.append(_share("marginal gain", scaling.gain, SATURATED_GAIN))
    busy = profile.busy_pct if profile is not None else None
    if busy is not None:
        evidence.append(Evidence(metric="device busy (%)", value=busy, threshold=IDLE_BUSY_PCT))
    outside = _outside(profile)
    if outside is not None:
        evidence.append(_share("share outside operators and the loader", outside, OUTSIDE_SHARE))
    limit: Limit = "cannot tell"
    remedy = ""
    message = "no share of the step stands out, and the slope of the throughput is within the noise"
    if outside is not None and outside >= OUTSIDE_SHARE:
        limit = "host"
        message = f"for {outside:.0%} of the step Python runs, and neither an operator nor the "
        message += "loader"
        remedy = "find that code with a Python profiler: logging, conversions, sleeps."
    elif fixed is not None and (scaling.fixed_low or 0.0) >= HOST_SHARE:
        limit = "host"
        message = f"{fixed:.0%} of the step is a cost per step that the batch does not change "
        message += "(Python, launches, the optimizer)"
    elif busy is not None and busy < IDLE_BUSY_PCT:
        limit = "host"
        message = f"the device is busy for {busy:.0f}% of the profiled window only"
        remedy = "look at the trace for synchronising calls (.item(), .cpu()) and small kernels."
    elif _flat(scaling):
        limit = "saturated"
        message = "the device is saturated: a larger batch takes proportionally longer"
        if wait is not None and wait >= LOSS_SHARE:
            return _input(wait, num_workers)
    elif scaling.gain is not None and scaling.gain >= PAYING_GAIN and fixed is None:
        limit = "host"
        message = "throughput still rises with the batch here"
    elif _computes(profile) and (fixed is None or fixed < SATURATED_SHARE):
        limit = "saturated"
        message = f"the CPU is inside operators for {_operators(profile):.0f}% of the step, and "
        message += "their calls are long"
    return Verdict(
        limit=limit,
        message=message,
        evidence=tuple(evidence),
        remedy=remedy or remedy_of(limit, profile, num_workers),
    )


def _with_scaling(found: Verdict, losses: Losses | None, scaling: Scaling) -> Verdict:
    """The verdict with what a larger batch can do, and the memory that forbids it."""
    pays = scaling.gain is not None and scaling.gain >= PAYING_GAIN
    if pays and scaling.at_memory_limit and found.limit in ("host", "small kernels"):
        found = msgspec.structs.replace(
            found,
            limit="memory",
            message=f"a larger batch would pay and does not fit; at this size {found.message}",
            remedy=remedy_of("memory"),
        )
    bounds = []
    if losses is not None:
        bounds.append(losses.gain_at_most())
    if scaling.fixed_high is not None:
        bounds.append(1 / max(1 - scaling.fixed_high, 0.01))
    if found.limit == "cannot tell" or (found.limit == "input" and not bounds):
        helps = "does not help" if found.limit == "input" else "unknown"
        return msgspec.structs.replace(found, larger_batch=helps)
    most = min(bounds, default=None)
    if found.limit in ("input", "copies", "saturated"):
        helps = "does not help"
    elif most is None:
        helps = "helps" if pays else "unknown"
    else:
        helps = "helps" if most >= HELPFUL_GAIN else "does not help"
    return msgspec.structs.replace(
        found, larger_batch=helps, gain_at_most=None if most is None else round(most, 3)
    )


def input_share(trial: Trial) -> float:
    """Share of the step spent waiting for the loader; 0 where it was not measured."""
    if trial.input_wait_s is None or trial.step_s is None or trial.step_s.median <= 0:
        return 0.0
    return min(1.0, trial.input_wait_s.median / trial.step_s.median)


def _flat(scaling: Scaling) -> bool:
    """Whether a larger batch buys nothing, by the slope or by the fixed part."""
    if scaling.gain_high is not None and scaling.gain_high < SATURATED_GAIN:
        return True
    return scaling.fixed_high is not None and scaling.fixed_high < SATURATED_SHARE


def _profile(record: RunRecord, batch_size: int, trial: Trial) -> Profile | None:
    """The latest profile of a size: a confirmation has none of its own."""
    if trial.profile is not None:
        return trial.profile
    found = [
        one.profile
        for one in record.trials
        if one.ran and one.batch_size == batch_size and one.profile is not None
    ]
    return found[-1] if found else None


def _outside(profile: Profile | None) -> float | None:
    """On a CPU: share of the window in neither an operator nor the loader."""
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
    total = sum(one.self_s for one in profile.operators)
    if total <= 0:
        return False
    mean_s = sum(one.self_s**2 / max(one.num_calls, 1) for one in profile.operators) / total
    return mean_s >= LONG_OPERATOR_S


def _share(metric: str, value: float, threshold: float) -> Evidence:
    return Evidence(metric=metric, value=round(value, 3), threshold=threshold)


def _input(wait: float, num_workers: int | None) -> Verdict:
    how = (
        "it loads in the training process (num_workers=0)"
        if not num_workers
        else f"{num_workers} workers do not keep up"
    )
    return Verdict(
        limit="input",
        message=f"the step waits {wait:.0%} of its time for the DataLoader: {how}",
        evidence=(_share("share of the step waiting for the loader", wait, INPUT_SHARE),),
        remedy=remedy_of("input", None, num_workers or 0),
    )
