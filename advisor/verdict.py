"""What limits the step at one size: input, host, a saturated device, or memory.

Ordered rules over shares of the step and over the slope of throughput against batch size. What
the noise does not support is "cannot tell".
"""

from __future__ import annotations

from math import log

from ..records import Evidence, RunRecord, TimeLaw, Trial, Verdict
from .facts import latest_timed

INPUT_SHARE = 0.30
"""Waiting for the loader takes at least this share of the step: input-bound."""
HOST_SHARE = 0.30
"""A cost per step that the batch does not change takes at least this share: host-bound."""
SATURATED_GAIN = 0.10
"""Marginal gain d ln(samples/s) / d ln(batch) below which a larger batch buys nothing."""
PAYING_GAIN = 0.30
"""Marginal gain from which on a larger batch clearly pays."""
IDLE_BUSY_PCT = 70.0
"""A GPU that is busy less than this waits for somebody."""


def verdict_at(record: RunRecord, batch_size: int, law: TimeLaw | None) -> Verdict:
    """What limits the step at `batch_size`."""
    sizes = latest_timed(record)
    trial = sizes.get(batch_size)
    if trial is None or trial.step_s is None:
        return Verdict(limit="cannot tell", message="no step was timed at this size")
    wait = _wait(trial)
    if wait is not None and wait.value_number >= INPUT_SHARE:
        return _input(record, wait)
    gain = marginal_gain(sizes, batch_size)
    host = _host_share(law, batch_size)
    busy = trial.profile.busy_pct if trial.profile is not None else None
    evidence = [one.evidence for one in (wait, host) if one is not None]
    if gain is not None:
        evidence.append(
            Evidence(metric="marginal gain", value=round(gain[0], 3), threshold=SATURATED_GAIN)
        )
    if busy is not None:
        evidence.append(Evidence(metric="device busy (%)", value=busy, threshold=IDLE_BUSY_PCT))
    if host is not None and host.value_number >= HOST_SHARE:
        return Verdict(
            limit="host",
            message=f"{host.value_number:.0%} of the step is a cost per step that the batch does "
            "not change (Python, launches, the optimizer)",
            evidence=tuple(evidence),
            remedy="a larger batch where the training allows it, torch.compile, fewer small "
            "operators, a fused or foreach optimizer.",
        )
    if busy is not None and busy < IDLE_BUSY_PCT:
        return Verdict(
            limit="host",
            message=f"the device is busy for {busy:.0f}% of the profiled window only",
            evidence=tuple(evidence),
            remedy="look at the trace for synchronising calls (.item(), .cpu()) and small kernels.",
        )
    if gain is not None and gain[1] < SATURATED_GAIN:
        return Verdict(
            limit="saturated",
            message="the device is saturated: a larger batch takes proportionally longer",
            evidence=tuple(evidence),
            remedy="a faster step needs less work per sample: lower precision, torch.compile, "
            "a smaller model; not a larger batch.",
        )
    if gain is not None and gain[0] >= PAYING_GAIN:
        return Verdict(
            limit="memory" if _at_the_limit(record, batch_size) else "host",
            message="throughput still rises with the batch here",
            evidence=tuple(evidence),
            remedy="a larger batch would be faster still, if memory and the training allow it.",
        )
    return Verdict(
        limit="cannot tell",
        message="no share of the step stands out, and the slope of the throughput is within "
        "the noise",
        evidence=tuple(evidence),
        remedy="measure longer (--budget), on a quieter machine.",
    )


def marginal_gain(sizes: dict[int, Trial], batch_size: int) -> tuple[float, float] | None:
    """d ln(samples/s) / d ln(batch) around a size, and its upper end by the intervals.

    Taken to the nearest larger size that ran at least 1.3 times as large, else from the nearest
    smaller one. 1: a larger batch is free. 0: it buys nothing.
    """
    larger = [one for one in sizes if one >= batch_size * 1.3]
    smaller = [one for one in sizes if one * 1.3 <= batch_size]
    if larger:
        low, high = batch_size, min(larger)
    elif smaller:
        low, high = max(smaller), batch_size
    else:
        return None
    one, two = sizes[low].samples_per_s, sizes[high].samples_per_s
    if one is None or two is None:
        return None
    ratio = log(high / low)
    return log(two.median / one.median) / ratio, log(two.high / one.low) / ratio


class _Share:
    def __init__(self, metric: str, value: float, threshold: float) -> None:
        self.value_number = value
        self.evidence = Evidence(metric=metric, value=round(value, 3), threshold=threshold)


def input_share(trial: Trial) -> float:
    """Share of the step spent waiting for the loader; 0 where it was not measured."""
    if trial.input_wait_s is None or trial.step_s is None or trial.step_s.median <= 0:
        return 0.0
    return min(1.0, trial.input_wait_s.median / trial.step_s.median)


def _wait(trial: Trial) -> _Share | None:
    if trial.input_wait_s is None or trial.step_s is None:
        return None
    share = input_share(trial)
    return _Share("share of the step waiting for the loader", share, INPUT_SHARE)


def _host_share(law: TimeLaw | None, batch_size: int) -> _Share | None:
    if law is None:
        return None
    share = law.fixed_s / (law.fixed_s + law.slope_s * batch_size)
    return _Share("fixed share of the step", share, HOST_SHARE)


def _input(record: RunRecord, wait: _Share) -> Verdict:
    workers = record.discovery.primary.num_workers if record.discovery is not None else 0
    how = (
        "it loads in the training process (num_workers=0)"
        if workers == 0
        else f"{workers} workers do not keep up"
    )
    return Verdict(
        limit="input",
        message=f"the step waits {wait.value_number:.0%} of its time for the DataLoader: {how}",
        evidence=(wait.evidence,),
        remedy="more workers (num_workers), cheaper or cached preprocessing; a larger batch does "
        "not help, its loading takes longer in proportion.",
    )


def _at_the_limit(record: RunRecord, batch_size: int) -> bool:
    refused = [one.batch_size for one in record.trials if one.outcome == "out_of_memory"]
    return bool(refused) and min(refused) <= batch_size * 4
