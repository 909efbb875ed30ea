"""The record of a watched loop, made from what the core counted. Pure: it measures nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..advisor.explain.callback_advice import SLOW_WINDOW
from ..records import (
    Cause,
    Counters,
    Discovery,
    Distribution,
    Fault,
    LoaderInfo,
    Memory,
    MemoryCreep,
    NoiseScale,
    Observed,
    Parallelism,
    Profile,
    SizeSeen,
    StretchesSeen,
    TailCheck,
    Trial,
)
from ..spread import around_mean, inverse, spread_of
from .device_times import Pacer
from .loop_info import Facts, launcher, unknown_loader
from .step_counter import Core
from .step_kinds import StepKind
from .token_count import TokenCount

SLOW = 2.0
"""A profiled step that takes so many times an ordinary one tells little of it."""
SLOW_STRETCH = 2.0
"""A stretch of steps this slow, by its mean over the usual one, tells of something else."""
MAX_WATCHED_SIZES = 8
"""Sizes that become a trial each; a loader that cuts by tokens has hundreds."""
ONLY_FIRST_STEPS = (
    "only the first steps were seen, and what compiles and allocates is in their time"
)
VARYING = "the size changes from step to step; the most frequent ones are shown"
HIDDEN = "a larger batch ran before in this process, and its peak hides this one's"
NOT_READ = "its peak was not read"
NO_STRETCH = (
    "the device runs behind the host, and no stretch of steps of one size was long enough to be "
    "timed by its own clock"
)
HOST_ONLY = "the device runs behind the host, whose clock does not time a single step"
WHY_NO_SIZE = "the batches do not tell how many samples they hold; give batch_size= to the callback"


def regular_kinds(core: Core) -> list[StepKind]:
    """One kind of step for each size that is a trial: not the short ends of epochs.

    Those never follow one of their own size, so they have no settled times. Where nothing settled,
    the most frequent kind stands for the run.
    """
    kinds = [kind for kind in core.kinds.values() if kind.num_timed]
    if not kinds:
        most = max(core.kinds.values(), key=lambda kind: kind.num_steps, default=None)
        seen = most is not None and (core.pacer is not None or bool(most.unsettled))
        return [most] if most is not None and seen else []
    chosen: dict[int, StepKind] = {}
    for kind in kinds:
        before = chosen.get(kind.batch_size)
        if before is None or kind.num_steps > before.num_steps:
            chosen[kind.batch_size] = kind
    frequent = sorted(chosen.values(), key=lambda kind: -kind.num_steps)[:MAX_WATCHED_SIZES]
    return [kind for kind in chosen.values() if kind in frequent]


def trials_of(
    core: Core,
    *,
    peaks: Mapping[int, Memory],
    profiles: Mapping[int, Profile],
    no_profile: str,
    counters: Counters | None,
    no_wait: str = "",
    window_step_s: Mapping[int, float] | None = None,
    tail_error: str = "",
    tail_size: int | None = None,
    tokens: TokenCount | None = None,
    causes: tuple[Cause, ...] = (),
) -> tuple[Trial, ...]:
    """The trials: one for each size that ran, and the one that ran out of memory.

    Args:
        peaks: memory by size.
        profiles: what the windows showed, by size.
        no_profile: why a size has none.
        counters: of NVML, over the whole run.
        window_step_s: seconds of a step in the profiled window, by size.
        no_wait: why the wait for data is not known; empty if it is.
        tail_error: how the last short batch failed; empty if it did not.
        tokens: of the batches, by size.
        tail_size: the usual size of the epoch at whose end it failed.
        causes: what took time from the loop as a whole.
    """
    kinds = regular_kinds(core)
    usual = core.usual_size
    trials: list[Trial] = []
    for kind in kinds:
        trial = _trial(len(trials), kind, core.pacer)
        size = kind.batch_size
        doubts = list(trial.doubts)
        if len(kinds) == MAX_WATCHED_SIZES:
            doubts.append(VARYING)
        if core.pacer is None:  # else a few steps by the host's clock say nothing
            doubts += _slow_window(trial, (window_step_s or {}).get(size))
        unavailable = dict(trial.unavailable)
        if size not in peaks:
            unavailable["memory"] = HIDDEN if size < max(peaks, default=0) else NOT_READ
        if size not in profiles:
            unavailable["profile"] = no_profile or _elsewhere(profiles)
        tail = None
        if size in core.tails:
            failed = tail_error if size == tail_size else ""
            tail = TailCheck(
                num_samples=core.tails[size],
                outcome="exception" if failed else "ok",
                detail=failed,
                num_non_finite=None,
            )
        if no_wait:
            unavailable["input_wait_s"] = no_wait
        fields: dict[str, Any] = {
            "input_wait_s": None if no_wait else trial.input_wait_s,
            "memory": peaks.get(size),
            "profile": profiles.get(size),
            "counters": counters if size == usual else None,
            "tail": tail,
            "tokens": None
            if tokens is None
            else tokens.of_size(size, kind.micro_batches, trial.samples_per_s),
            "size_proof": "asked" if core.num_stated else trial.size_proof,
            "doubts": tuple(doubts),
            "causes": causes,
            "unavailable": unavailable,
        }
        trials.append(_with(trial, fields))
    if core.refused is not None and core.refused[0] is not None:
        trials.append(_refused(len(trials), core.refused[0], core.refused[1]))
    return tuple(trials)


def as_stated(core: Core, batch_size: int | None) -> list[str]:
    """The doubt where sizes are what the user said of them."""
    if not core.num_stated:
        return []
    return [f"the batches do not tell how many samples they hold: batch_size={batch_size} is taken"]


def _elsewhere(profiles: Mapping[int, Profile]) -> str:
    sizes = ", ".join(map(str, sorted(profiles)))
    return f"the profiled window lay in steps of another batch size ({sizes})"


def _slow_window(trial: Trial, window_step_s: float | None) -> list[str]:
    if window_step_s is None or trial.step_s is None or trial.step_s.median <= 0:
        return []
    factor = window_step_s / trial.step_s.median
    if factor < SLOW:
        return []
    return [f"{SLOW_WINDOW}{factor:.1f} times as long as the others; its shares are the window's"]


def _times(kind: StepKind, pacer: Pacer | None) -> list[tuple[float, float]]:
    """Seconds of a step and of the wait in it: of steps, or of stretches, each their mean."""
    if pacer is None:
        pairs = list(kind.times.values) or kind.unsettled
        return [(step / 1e9, wait / 1e9) for step, wait in pairs]
    return [
        (stretch.elapsed_ns / stretch.steps / 1e9, stretch.wait_ns / stretch.steps / 1e9)
        for stretch in kind.stretches.whole
    ]


def _mean_s(kind: StepKind, median_s: float) -> float:
    """Seconds of a step over all stretches, but for those that something else slowed down."""
    usual = [
        stretch
        for stretch in kind.stretches.whole
        if stretch.elapsed_ns <= 1e9 * SLOW_STRETCH * median_s * stretch.steps
    ]
    return (
        sum(stretch.elapsed_ns for stretch in usual) / sum(stretch.steps for stretch in usual) / 1e9
    )


def _trial(ordinal: int, kind: StepKind, pacer: Pacer | None) -> Trial:
    pairs = _times(kind, pacer)
    step_s = spread_of([step for step, _ in pairs])
    if pacer is not None and step_s is not None:
        step_s = around_mean(step_s, _mean_s(kind, step_s.median))
    per_step = kind.batch_size * kind.micro_batches
    return Trial(
        ordinal=ordinal,
        worker=0,
        batch_size=kind.batch_size,
        kind="timed",
        purpose="search",
        outcome="ok",
        arrived_batch_size=kind.batch_size,
        size_proof="shape",
        micro_batches=kind.micro_batches,
        num_warmup_steps=kind.num_steps - kind.num_timed,
        step_s=step_s,
        samples_per_s=inverse(step_s, per_step) if step_s and step_s.low > 0 else None,
        input_wait_s=spread_of([wait for _, wait in pairs]),
        elapsed_s=kind.elapsed_ns / 1e9,
        doubts=() if kind.num_timed or pacer is not None else (ONLY_FIRST_STEPS,),
        unavailable={} if pairs or pacer is None else {"step_s": pacer.problem or NO_STRETCH},
    )


def _with(trial: Trial, fields: dict[str, Any]) -> Trial:
    import msgspec

    return msgspec.structs.replace(trial, **fields)


def _refused(ordinal: int, batch_size: int, text: str) -> Trial:
    return Trial(
        ordinal=ordinal,
        worker=0,
        batch_size=batch_size,
        kind="timed",
        purpose="search",
        outcome="out_of_memory",
        detail=text,
    )


def observed_of(
    core: Core,
    facts: Facts,
    *,
    profiled: tuple[int, ...],
    held_bytes: int | None,
    creep: MemoryCreep | None = None,
    noise: NoiseScale | None,
    reasons: Mapping[str, str],
) -> Observed:
    """The whole loop in counts."""
    unavailable = dict(reasons)
    if core.num_unsized:
        unavailable["num_samples"] = WHY_NO_SIZE
    if core.num_other_sizes:
        num = core.num_other_sizes
        unavailable["sizes"] = f"{num} micro-batches of further sizes are not listed"
    if not core.num_tokens:
        unavailable["num_tokens"] = "the loop did not count tokens"
    sizes = sorted(core.sizes.items(), key=lambda item: -item[1])
    return Observed(
        framework=facts.framework,
        framework_version=facts.version,
        rank=facts.rank,
        world_size=facts.world_size,
        num_steps=core.num_steps,
        num_micro_batches=core.num_micro_batches,
        num_samples=None if core.num_unsized else core.num_samples,
        num_skipped_steps=core.num_skipped_steps,
        num_tokens=core.num_tokens or None,
        num_epochs=core.num_epochs,
        sizes=tuple(SizeSeen(batch_size=size, num_micro_batches=n) for size, n in sizes),
        stretches=_stretches(core),
        profiled_steps=profiled,
        held_bytes=held_bytes,
        creep=creep,
        noise_scale=noise,
        pipeline=facts.pipeline,
        unavailable=unavailable,
    )


def _stretches(core: Core) -> tuple[StretchesSeen, ...]:
    if core.pacer is None:
        return ()
    return tuple(
        StretchesSeen(
            batch_size=kind.batch_size,
            num_stretches=len(kind.stretches.whole),
            num_steps=kind.stretches.usual_steps,
            clock=core.pacer.timeline.clock,
        )
        for kind in regular_kinds(core)
        if kind.stretches.whole
    )


def discovery_of(core: Core, facts: Facts, setup_s: float) -> Discovery | None:
    """The loop as the advice wants it; `None` before a size is known."""
    loader: LoaderInfo | None = facts.loader
    size = (loader.batch_size if loader is not None else None) or core.usual_size
    if size is None:
        return None
    kinds = [kind for kind in core.kinds.values() if kind.batch_size == size]
    seen = max(kinds, key=lambda kind: kind.num_steps, default=None)
    micro = seen.micro_batches if seen is not None else facts.micro_batches or 1
    first = next(iter(core.kinds.values()), None)
    times = [] if first is None else first.unsettled or list(first.times.values)
    reasons = dict(facts.reasons)
    if core.pacer is not None:
        times = []
        reasons["native_step_s"] = HOST_ONLY
    if facts.num_parameters is None:
        reasons.setdefault("num_parameters", "neither a model nor an optimizer was seen")
    if facts.norm_layers is None:
        reasons.setdefault("norm_layers", "no model was seen")
    return Discovery(
        loaders=(loader or unknown_loader(size),),
        optimizers=facts.optimizers,
        primary_loader=0,
        native_batch_size=size,
        micro_batches=micro,
        parameter_device=facts.device or "unknown",
        num_parameters=facts.num_parameters,
        norm_layers=facts.norm_layers,
        setup_s=setup_s,
        native_step_s=times[0][0] / 1e9 if times else None,
        unavailable=reasons,
    )


def distribution_of(facts: Facts) -> Distribution | None:
    """The job of several ranks; `None` for one process. What communication costs stays unknown."""
    if facts.world_size < 2:
        return None
    return Distribution(
        world_size=facts.world_size,
        launcher=launcher(),
        parallelism=Parallelism(world_size=facts.world_size),
        unavailable={"communication": "a callback does not stop the synchronisation to measure it"},
    )


def fault_of(error: BaseException) -> Fault:
    """An exception of the user's loop, in one line; the traceback is the user's own."""
    text = str(error).splitlines()
    detail = f"{type(error).__name__}: {text[0][:300]}" if text else type(error).__name__
    return Fault(outcome="exception", detail=detail, worker=0)
