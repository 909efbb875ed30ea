"""Advice from a training that a callback watched: nothing was steered, so little was compared.

A callback sees one batch size, or those of a changing schedule one after the other. What was seen
is said as measured; every other size is an estimate and called one.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from ...records import (
    Advice,
    Choice,
    Evidence,
    Finding,
    Memory,
    NoiseScale,
    Observed,
    Pipeline,
    StretchesSeen,
    TailFinding,
    Verdict,
    worst_first,
)
from ...units import format_bytes
from ..measured.measurements import Measurements
from ..measured.sizes import MIN_STEPS_AN_EPOCH, bound_by_steps
from ..measured.training import LINEAR_RULE, SQUARE_ROOT_RULE
from ..tails import tails
from . import disturbances
from .headline import headline

SLOW_WINDOW = "a step of the profiled window took "
"""Begins the doubt about a window that was much slower than the steps around it."""
NEXT_SIZE_FACTOR = 2
"""The size to try next is at most so many times the one that ran."""
_SEVERITY = {"error": "error", "nan": "error", "bias": "warning", "waste": "info", "slow": "info"}


def with_observed(measurements: Measurements, advice: Advice) -> Advice:
    """The advice in the words of what a callback can know."""
    observed = measurements.record.observed
    if observed is None:
        return advice
    verdict = _verdict(measurements, observed, advice.verdict)
    advice = msgspec.structs.replace(advice, verdict=verdict)
    sizes = sorted(measurements.sizes_that_ran)
    findings = list(advice.findings)
    size = advice.recommended.batch_size if advice.recommended is not None else None
    if observed.world_size > 1 and observed.pipeline is not None:
        # What one process's loader looks like is not how the job's epoch ends.
        findings = [one for one in findings if not one.rule.startswith("tails.")]
        findings += _tail_findings(observed.pipeline, size)
    if advice.recommended is not None:
        findings += _estimates(measurements, advice, advice.recommended.batch_size)
    findings += _taken_time(measurements)
    findings += [_stretches(stretch) for stretch in observed.stretches]
    if observed.noise_scale is not None:
        findings.append(_noise(measurements, observed.noise_scale))
    advice = msgspec.structs.replace(advice, findings=worst_first(findings))
    if advice.recommended is None:
        return _refused(measurements, advice)
    if len(sizes) > 1:
        reason = f"{advice.reason} The sizes ran one after the other in one training, not in turn."
        return msgspec.structs.replace(advice, reason=reason)
    said = headline(advice.recommended).replace("Use batch size", "Batch size", 1)
    return msgspec.structs.replace(
        advice,
        headline=said.replace(":", " as it ran:", 1),
        reason="The callback saw this size alone: whether another one is faster was not measured.",
        change="",
    )


def _refused(measurements: Measurements, advice: Advice) -> Advice:
    """A size that ran until it was refused memory: its steps were timed all the same."""
    trial = measurements.record.usual_trial
    if trial is None or not any(
        failure.outcome == "out_of_memory" for failure in measurements.failed
    ):
        return advice
    until = Choice(
        batch_size=trial.batch_size,
        trial=trial.ordinal,
        samples_per_s=trial.samples_per_s,
        step_s=trial.step_s,
        peak_bytes=trial.memory.peak_bytes if trial.memory is not None else None,
    )
    said = headline(until).replace("Use batch size", "Batch size", 1)
    said = said.replace(":", " ran out of memory; until then", 1)
    return msgspec.structs.replace(advice, headline=said)


def _verdict(measurements: Measurements, observed: Observed, verdict: Verdict) -> Verdict:
    """Turns a verdict into "cannot tell" where a CPU's trace cannot tell Python from other causes.

    Waiting for other ranks is not in it, and neither is a core that was taken away.
    """
    device, trials = measurements.record.device, measurements.record.trials
    on_cpu = device is not None and device.kind == "cpu"
    slow = any(doubt.startswith(SLOW_WINDOW) for trial in trials for doubt in trial.doubts)
    taken = disturbances.worst(trials)
    alone = len(measurements.sizes_that_ran) == 1
    if not on_cpu or not (observed.world_size > 1 or slow or taken):
        return verdict
    if (slow or taken) and alone and verdict.limit == "saturated":
        why = "the profiled window was much slower than the steps around it"
        remedy = "profile again on a quieter machine, or more steps (profile_steps)."
        if taken:
            why = "operators that wait for a core look as long as those that compute"
            remedy = disturbances.remedy_against(taken) or remedy
        return msgspec.structs.replace(
            verdict,
            limit="cannot tell",
            message=f"{why}, and one size alone does not show what a larger one would do",
            remedy=remedy,
            larger_batch="unknown",
            gain_at_most=None,
        )
    if verdict.limit != "host":
        return verdict
    what = "waiting for other ranks" if observed.world_size > 1 else "a machine that was busy"
    return msgspec.structs.replace(
        verdict,
        limit="cannot tell",
        message=f"most of the profiled window is neither an operator nor the loader: Python, or "
        f"{what}, which a trace of a CPU does not tell apart",
        remedy="look at the traces of all ranks side by side."
        if observed.world_size > 1
        else "profile again on a quieter machine, or more steps (profile_steps).",
        larger_batch="unknown",
        gain_at_most=None,
    )


def to_try(
    measurements: Measurements, verdict: Verdict, size: int, room: Headroom | str
) -> int | None:
    """The size to try next: twice as large as far as it fits and leaves steps enough in an epoch,
    without a harmful tail near by."""
    if verdict.larger_batch == "does not help" or isinstance(room, str):
        return None
    if _paid_too_little(measurements, size):
        return None
    most = min(NEXT_SIZE_FACTOR * size, size + room.samples)
    bad = measurements.smallest_bad
    if bad is not None:
        most = min(most, bad - 1)
    discovery = measurements.record.discovery
    if discovery is None:
        return None
    if discovery.primary.num_samples is not None:
        most = min(most, discovery.primary.num_samples)
    by_steps = bound_by_steps(measurements)
    if by_steps is not None:
        most = min(most, by_steps)
    if most <= size:
        return None
    lowest = size + max(1, (most - size) // 2)
    candidates = range(most, lowest - 1, -1)
    even = [candidate for candidate in candidates if candidate % 8 == 0] or list(candidates)
    clean = measurements.first_clean(even)
    return clean if clean is not None else next(iter(even), None)


def _too_few_steps(measurements: Measurements, size: int) -> bool:
    """Whether every larger size leaves too few optimizer steps in an epoch."""
    most = bound_by_steps(measurements)
    return most is not None and most <= size


def _paid_too_little(measurements: Measurements, size: int) -> list[int]:
    """Larger sizes that ran to the end; they would be the recommended ones had they paid."""
    timed = measurements.best_timed
    return [other for other in timed if other > size and not measurements.known_bad(other)]


def _estimates(measurements: Measurements, advice: Advice, size: int) -> list[Finding]:
    verdict = advice.verdict
    room = headroom(measurements, size)
    findings: list[Finding] = []
    if isinstance(room, Headroom) and room.samples > 0:
        findings.append(
            Finding(
                rule="callback.headroom",
                severity="info",
                message="memory leaves room for "
                + (f"about {room.samples} " if room.is_number else "")
                + f"more samples a micro-batch ({room.basis})",
                evidence=(Evidence(metric="samples", value=room.samples),)
                if room.is_number
                else (),
                confidence="estimate",
            )
        )
    if size not in measurements.best_timed:
        return findings
    again = _command(measurements.record.script.path)
    if verdict.larger_batch == "does not help":
        text = f"a larger batch would not make the steps more efficient: {verdict.message}"
        return [*findings, _try(text, size, "Nothing to try; fix what limits the step.")]
    larger = to_try(measurements, verdict, size, room)
    if larger is None:
        ran_too = ", ".join(map(str, _paid_too_little(measurements, size)))
        why = room if isinstance(room, str) else "no larger size fits"
        discovery = measurements.record.discovery
        if discovery is not None and discovery.primary.num_samples in range(1, size + 1):
            why = "the data set has no more samples"
        elif _too_few_steps(measurements, size) and isinstance(room, Headroom) and room.samples:
            why = f"an epoch would have fewer than {MIN_STEPS_AN_EPOCH} optimizer steps"
        if ran_too:
            why = f"{ran_too} ran too and gained too little"
        return [*findings, _try(f"no larger size to try: {why}", size, f"{again} for other sizes.")]
    if verdict.larger_batch == "helps":
        text = f"try {larger}: it should fit, and a larger batch helps here"
    else:
        seen = "one size" if len(measurements.best_timed) == 1 else "the sizes that ran"
        text = f"try {larger}: it should fit; whether it is faster {seen} cannot tell"
    return [*findings, _try(text, larger, f"{again}, or set it and keep the callback.")]


def _command(script: str) -> str:
    if script.endswith(".py"):
        return f"`batchadvisor run {script}` measures it"
    return "`batchadvisor run` measures it in a script of its own"


def _try(message: str, size: int, remedy: str) -> Finding:
    return Finding(
        rule="callback.try",
        severity="info",
        message=message,
        evidence=(Evidence(metric="batch size", value=size),),
        remedy=remedy,
        confidence="estimate",
    )


def tail_cases(pipeline: Pipeline | None) -> tuple[TailFinding, ...]:
    """The harmful cases at the end of an epoch in this pipeline."""
    if pipeline is None:
        return ()
    return tuple(finding for finding in tails(pipeline).findings if finding.harmful)


def _tail_findings(pipeline: Pipeline, size: int | None) -> list[Finding]:
    """Cases of several ranks at the size that is advised."""
    # Only a loader that splits its batches counts the samples of all ranks in its size.
    if size is not None and size != pipeline.batch_size and not pipeline.split_batches:
        pipeline = msgspec.structs.replace(pipeline, batch_size=size)
    return [
        Finding(
            rule=f"tails.{finding.id}",
            severity=_SEVERITY[finding.severity],  # type: ignore[arg-type]
            message=finding.message,
            evidence=finding.evidence,
            remedy=f"{finding.fixes[0].title}:" if finding.fixes else "",
            code=tuple(finding.fixes[0].snippet.splitlines()) if finding.fixes else (),
        )
        for finding in tail_cases(pipeline)
    ]


def _taken_time(measurements: Measurements) -> list[Finding]:
    """What took time from the training as a whole: no single step was judged."""
    causes = disturbances.worst(measurements.record.trials)
    if not causes:
        return []
    return [
        Finding(
            rule="callback.others",
            severity="warning",
            message=f"while it trained, {'; '.join(cause.message for cause in causes)}: "
            "the step times are with that",
            evidence=tuple(
                Evidence(metric=f"cores taken ({cause.kind})", value=round(cause.cores, 2))
                for cause in causes
                if cause.cores is not None
            ),
            remedy=disturbances.remedy_against(causes),
        )
    ]


def _stretches(seen: StretchesSeen) -> Finding:
    """How the steps of a size were timed on a device that runs behind the host."""
    return Finding(
        rule="callback.stretches",
        severity="info",
        message=f"a step's time at batch size {seen.batch_size} is the mean of a stretch of "
        f"{seen.num_steps} steps, by {seen.clock}; its spread is that of {seen.num_stretches}",
        evidence=(
            Evidence(metric="stretches", value=seen.num_stretches),
            Evidence(metric="steps in a stretch", value=seen.num_steps),
        ),
    )


def _noise(measurements: Measurements, noise: NoiseScale) -> Finding:
    """The critical batch size as an interval or a lower bound, with the step it was taken at."""
    when = f"at steps {noise.first_step} to {noise.last_step}"
    if noise.low is None:
        what = "is not known"
    elif noise.high is None:
        what = f"is above {noise.low:.3g} samples"
    else:
        what = f"lies between {noise.low:.3g} and {noise.high:.3g} samples"
    discovery = measurements.record.discovery
    optimizer = next(iter(discovery.optimizers), None) if discovery is not None else None
    rule, source = (
        LINEAR_RULE if optimizer is not None and optimizer.name == "SGD" else SQUARE_ROOT_RULE
    )
    return Finding(
        rule="callback.noise_scale",
        severity="info",
        message=f"the critical effective batch {what} ({noise.confidence:.0%}), {when}; it grows "
        "as the training goes on",
        evidence=(
            Evidence(metric="effective batch measured", value=noise.large_batch),
            Evidence(metric="measured steps", value=noise.num_measured),
        ),
        remedy="below it a larger effective batch costs few more samples; then, as a suggestion: "
        f"{rule} ({source}).",
        confidence="estimate",
    )


# Room for larger micro-batches beside a size that a callback saw: an estimate with its basis.

NOISE_BYTES, NOISE_SHARE = 32 * 2**20, 0.02
"""Peaks of a process or of an allocator's segments differ by so much on their own."""
FARTHEST_BY_LINE = 64
"""A line through sizes that ran says nothing of a size so many times as large."""


class Headroom(NamedTuple):
    """Room for larger micro-batches, an estimate.

    Attributes:
        samples: that fit beside those of the size that ran, within capacity less margin.
        basis: what the estimate rests on.
        is_number: whether it is one to be told; else it bounds what to try and no more.
    """

    samples: int
    basis: str
    is_number: bool = True


def headroom(measurements: Measurements, size: int) -> Headroom | str:
    """Samples that still fit beside `size`, or why that is not known."""
    room = _headroom(measurements, size)
    if isinstance(room, str):
        return room
    refused = [
        failure.batch_size for failure in measurements.failed if failure.outcome == "out_of_memory"
    ]
    if refused and size + room.samples >= min(refused):
        below = max(0, min(refused) - 1 - size)
        return Headroom(below, f"memory was refused at {min(refused)}")
    return room


def _headroom(measurements: Measurements, size: int) -> Headroom | str:
    target = measurements.target_bytes
    memory = measurements.trusted_memory
    here = memory.get(size)
    if target is None or here is None:
        return "the device's memory or its peak is not known"
    left = target - here.peak_bytes
    if left <= 0:
        return f"the peak is above {format_bytes(target)} already"
    by_held = _by_held(measurements.record.observed, here, size, left)
    proportional = int(size * left / here.peak_bytes)
    other = sorted(
        (neighbour for neighbour in memory if neighbour != size),
        key=lambda neighbour: abs(neighbour - size),
    )
    if other:
        for nearest in other:
            rise = (here.peak_bytes - memory[nearest].peak_bytes) * (1 if nearest < size else -1)
            if rise >= max(NOISE_BYTES, NOISE_SHARE * here.peak_bytes):
                samples = int(left * abs(size - nearest) / rise)
                low, high = sorted((nearest, size))
                basis = f"a line through the sizes {low} and {high}"
                if samples <= FARTHEST_BY_LINE * size:
                    return Headroom(samples, basis)
                basis = f"more than {FARTHEST_BY_LINE} times this size, by {basis}"
                return Headroom(samples, basis, is_number=False)
        sizes = f"{min(*other, size)} and {max(*other, size)}"
        basis = f"the peak hardly differs between the sizes {sizes}"
        return Headroom(by_held.samples if by_held else proportional, basis, is_number=False)
    if by_held is not None:
        return by_held
    device = measurements.record.device
    if device is not None and device.kind == "cpu":
        basis = "at least, if memory grows in proportion to the batch at most; one size was seen"
    else:
        basis = "at least, if memory grows in proportion to the batch; one size was seen"
    return Headroom(proportional, basis)


def _by_held(
    observed: Observed | None, memory: Memory, size: int, left_bytes: int
) -> Headroom | None:
    """Tells how far the size can grow: bytes held between steps stay, those freed grow with it."""
    held = observed.held_bytes if observed is not None else None
    if held is None or memory.allocated_bytes is None or memory.allocated_bytes <= held:
        return None
    slope = (memory.allocated_bytes - held) / size
    basis = f"{format_bytes(held)} stay allocated between steps and the rest grows with the batch"
    return Headroom(int(left_bytes / slope), f"if {basis}; one size was seen")
