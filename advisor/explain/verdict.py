"""What limits the step at one size, whether a larger batch helps, and what to do instead.

Ordered rules. Where a trace shows the GPU, its losses decide and the times only bound what a
larger batch can gain. Without one, the times decide: waiting for the loader, the part of the step
that the batch does not change, the slope of the throughput. What the noise does not support is
"cannot tell".
"""

from __future__ import annotations

import msgspec

from ...records import Evidence, Helps, Limit, Profile, TimeLaw, Trial, Verdict
from ..measured.measurements import Measurements
from ..measured.scaling import Scaling, input_share, scaling_at
from ..measured.thresholds import (
    COMPUTE_SHARE,
    FILLED_PCT,
    HELPFUL_GAIN,
    LOSS_SHARE,
    SATURATED_GAIN,
)
from ..measured.trials import says_nothing
from . import disturbances
from .limits import Losses, losses_of, message_of
from .remedies import LOADING, UNTIMED, USE_DDP, Workers, remedy_of
from .unexplained import UNTIMED_SHARES, small_losses, unexplained, unrecorded
from .verdict_from_times import by_times


def verdict_at(measurements: Measurements, batch_size: int, law: TimeLaw | None) -> Verdict:
    """Finds what limits the step at `batch_size`."""
    sizes = measurements.best_timed
    trial = sizes.get(batch_size)
    if trial is None or trial.step_s is None:
        return Verdict(limit="cannot tell", message="no step was timed at this size")
    device = measurements.record.device
    on_cpu = device is None or device.kind == "cpu"
    if on_cpu and (trial.contended or says_nothing(trial.samples_per_s)):
        return Verdict(
            limit="cannot tell",
            message="most timed steps were held up from outside the script, so that what a step "
            "costs by itself is not known"
            if trial.contended
            else "step times differ by more than half, so that they say nothing of their cause",
            remedy=disturbances.remedy(measurements),
        )
    wait = None if trial.input_wait_s is None else input_share(trial)
    discovery = measurements.record.discovery
    verdict = verdict_of(
        _profile(measurements, batch_size, trial),
        wait=wait,
        scaling=scaling_at(measurements, batch_size, law),
        num_workers=measurements.script.num_workers,
        num_cores=_cores(measurements),
        stream=discovery is not None and discovery.primary.iterable,
        gpu=not on_cpu,
    )
    distribution = measurements.record.distribution
    seen = None if distribution is None else distribution.parallelism
    if seen is None or not seen.scatters:
        return verdict
    remedy = verdict.remedy.replace(remedy_of("communication"), USE_DDP)
    return msgspec.structs.replace(verdict, remedy=remedy)


def _cores(measurements: Measurements) -> int | None:
    """Cores that the script's data workers may run on, the training's own among them."""
    discovery, device = measurements.record.discovery, measurements.record.device
    if device is not None and device.num_cores is not None:
        return device.num_cores
    masks = None if discovery is None else discovery.cores
    return None if masks is None else masks.at_start


def verdict_of(
    profile: Profile | None,
    *,
    wait: float | None = None,
    scaling: Scaling | None = None,
    num_workers: int | None = None,
    num_cores: int | None = None,
    stream: bool = False,
    gpu: bool = False,
) -> Verdict:
    """Finds what limits a step.

    Args:
        profile: what a trace of it showed.
        wait: share of unprofiled steps spent waiting for the DataLoader.
        scaling: what other sizes say.
        num_workers: of the DataLoader.
        num_cores: of the host, that workers may run on.
        stream: the DataLoader reads an iterable data set.
        gpu: the step is known to run on one, whether or not the trace shows it.
    """
    alone = scaling is None
    scaling = scaling or Scaling()
    seen = profile is not None and (profile.unrecorded != "" or profile.busy_pct is not None)
    workers = Workers(num_workers, num_cores, beside_training=not (gpu or seen), stream=stream)
    if profile is not None and profile.unrecorded:
        return _with_scaling(unrecorded(profile, wait, scaling, workers), None, scaling)
    losses = losses_of(profile, wait)
    if losses is not None:
        workers = workers._replace(wait=losses.input)
    if gpu and losses is None and profile is not None:
        # Outside its operators the host may wait for the GPU, which such a trace does not show.
        profile = msgspec.structs.replace(profile, operators_pct=None, operators=())
    if wait is None and profile is not None and profile.input_wait_pct is not None:
        wait = profile.input_wait_pct / 100
    if losses is not None and profile is not None:
        verdict = _by_losses(losses, profile, workers)
        if alone and verdict.remedy == remedy_of("cannot tell"):
            verdict = msgspec.structs.replace(verdict, remedy=UNTIMED_SHARES)
    else:
        verdict = by_times(profile, wait, scaling, workers)
    verdict = _with_scaling(verdict, losses, scaling)
    if losses is not None and wait is None and verdict.limit == "host":
        return _without_loader(verdict, scaling)
    return verdict


def without_steps(verdict: Verdict) -> Verdict:
    """The verdict on a window of no known number of steps, which may hold start-up.

    Start-up waits for the host as a small batch does, and no batch shortens it.
    """
    helps = "unknown" if verdict.larger_batch == "helps" else verdict.larger_batch
    return msgspec.structs.replace(
        verdict,
        message=verdict.message.replace(" of the step", " of the window"),
        larger_batch=helps,
        gain_at_most=None if helps == "unknown" else verdict.gain_at_most,
        confidence="estimate",
    )


def _without_loader(verdict: Verdict, scaling: Scaling) -> Verdict:
    """A late host, of which nothing says whether it waited for its loader."""
    return msgspec.structs.replace(
        verdict,
        message=f"{verdict.message}, or for the DataLoader: the trace holds no host activity",
        remedy=f"profile with CPU activity as well; if it is not the DataLoader: {verdict.remedy}",
        larger_batch="helps" if scaling.pays else "unknown",
        gain_at_most=None,
    )


def _by_losses(losses: Losses, profile: Profile, workers: Workers) -> Verdict:
    """The rules for a GPU that a trace shows."""
    kind, share = losses.largest()
    limit: Limit = "cannot tell"
    evidence = [Evidence(metric="share of the step", value=round(share, 3), threshold=LOSS_SHARE)]
    unfilled = losses.unfilled is not None and losses.compute > 0
    filled = 1 - (losses.unfilled or 0.0) / losses.compute if unfilled else 1.0
    if profile.idle is not None and losses.unexplained > max(share, LOSS_SHARE):
        return unexplained(losses, profile, profile.idle)
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
    helped: Limit = limit
    if limit == "cannot tell" and share >= LOSS_SHARE:
        helped = kind
        message = (
            f"two things cost much: {message_of(kind, losses)}, and the kernels do not fill the GPU"
        )
    elif limit == "cannot tell":
        message = small_losses(losses)
    else:
        message = message_of(limit, losses)
    remedy = remedy_of(helped, profile, workers)
    if limit == "saturated" and losses.unfilled is None:
        remedy = UNTIMED
    if helped != "input" and losses.input >= LOSS_SHARE:
        loader = remedy_of("input", profile, workers)
        remedy += f" For the {losses.input:.0%} that it waits for the DataLoader: {loader}."
    return Verdict(
        limit=limit,
        message=message,
        evidence=tuple(evidence),
        remedy=remedy,
        contributions=losses.contributions(),
        confidence="estimate" if limit in ("synchronisation", "small kernels") else "measured",
    )


def _with_scaling(verdict: Verdict, losses: Losses | None, scaling: Scaling) -> Verdict:
    """The verdict with what a larger batch can do, and the memory that forbids it."""
    if verdict.limit == "input":
        return _with_loader(verdict, losses, scaling)
    if scaling.pays and scaling.at_memory_limit and verdict.limit in ("host", "small kernels"):
        verdict = msgspec.structs.replace(
            verdict,
            limit="memory",
            message=f"a larger batch would pay and does not fit; at this size {verdict.message}",
            remedy=remedy_of("memory"),
        )
    # Without grids the losses leave out what larger kernels gain: they are no upper bound. The
    # operators of a CPU show none at all.
    blind = losses is None or losses.unfilled is None
    bounds = []
    if losses is not None and (not blind or scaling.fixed_high is None):
        bounds.append(losses.gain_at_most())
    if scaling.fixed_high is not None:
        bounds.append(_bound(scaling.fixed_high))
        blind = False
    if verdict.limit == "cannot tell":
        return msgspec.structs.replace(verdict, larger_batch="unknown")
    most = min(bounds, default=None)
    flat = scaling.gain_high is not None and scaling.gain_high < SATURATED_GAIN
    if verdict.limit == "saturated" and blind and not flat:
        helps = "helps" if scaling.pays else "unknown"
    elif verdict.limit in ("copies", "saturated"):
        helps = "does not help"
    elif most is None or (verdict.limit == "communication" and most >= HELPFUL_GAIN):
        # Gradients are as large at any size, what all-to-all sends is not.
        helps = "helps" if scaling.pays else "unknown"
    else:
        helps = "helps" if most >= HELPFUL_GAIN else "does not help"
    return msgspec.structs.replace(
        verdict,
        larger_batch=helps,
        gain_at_most=None if most is None or blind else round(most, 3),
    )


def _with_loader(verdict: Verdict, losses: Losses | None, scaling: Scaling) -> Verdict:
    """A step that waits for its loader, the longer the more samples unless sizes speak against it.

    The bound of the gain goes by the same: what a trace lost beside loading, or the fixed part of
    the step.
    """
    most = None
    if scaling.may_pay:
        helps: Helps = "helps" if scaling.pays else "unknown"
        if scaling.fixed_high is not None:
            most = _bound(scaling.fixed_high)
    else:
        helps = "does not help"
        if losses is not None and losses.unfilled is not None:
            most = losses.gain_at_most()
    return msgspec.structs.replace(
        verdict,
        remedy=f"{verdict.remedy}; {LOADING[helps]}",
        larger_batch=helps,
        gain_at_most=None if most is None else round(most, 3),
    )


def _bound(fixed: float) -> float:
    """The gain of a batch without end over a step of which so much does not grow with it."""
    return 1 / max(1 - fixed, 0.01)


def _profile(measurements: Measurements, batch_size: int, trial: Trial) -> Profile | None:
    """The latest profile of a size: a confirmation has none of its own."""
    if trial.profile is not None:
        return trial.profile
    profiles = [
        other.profile
        for other in measurements.record.trials
        if other.ran and other.batch_size == batch_size and other.profile is not None
    ]
    return profiles[-1] if profiles else None
