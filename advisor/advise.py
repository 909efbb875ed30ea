"""The answer: one size chosen by one objective under constraints, and what explains it.

Pure: a record and nothing else goes in. Only sizes that ran are recommended, and what a fresh
process confirmed comes before what the search saw.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ..records import (
    Advice,
    Choice,
    Discovery,
    Goal,
    MemoryLaw,
    MemoryRisk,
    PriorLaw,
    RunRecord,
    Spread,
    Tail,
    TailCheck,
    TimeLaw,
    Training,
    Trial,
    Verdict,
    worst_first,
)
from ..spread import inverse
from .choose.decision import Decision, choose, fastest_is_open
from .choose.finalists import agrees
from .choose.knee import fastest
from .explain.callback_advice import with_observed
from .explain.change import change, change_check
from .explain.creep_findings import why_unknown
from .explain.distribution_findings import distribution_findings
from .explain.findings import findings_of
from .explain.headline import headline
from .explain.reasons import reason
from .explain.token_findings import estimates_at
from .explain.verdict import verdict_at
from .measured.distribution import num_ranks, scaling_of
from .measured.energy import samples_per_joule
from .measured.epoch_end import known_loss, loss_question, tail_of, with_believed_length
from .measured.flop_rate import flop_rate
from .measured.laws import fit_memory, fit_time
from .measured.length_risk import risk_record
from .measured.measurements import Measurements
from .measured.memory_prior import stated
from .measured.scaling import steady
from .measured.sizes import largest_allowed
from .measured.token_pace import real_rate
from .measured.training import training_of, with_steps_seen


def advise(record: RunRecord, goal: Goal | None = None) -> Advice:
    """The advice for a record, under its own goal or another one.

    Args:
        goal: asks another question of the same measurements.
    """
    measurements = Measurements.of(with_believed_length(with_steps_seen(record)), goal)
    unavailable: dict[str, str] = {}
    time_law = _time_law(measurements, unavailable)
    memory_law = _memory_law(measurements, unavailable)
    decision = choose(measurements, measurements.goal)
    chosen, own = decision.size, measurements.own_size
    recommended = _optional(measurements, chosen)
    native = _optional(measurements, own if own in measurements.sizes_that_ran else None)
    verdict = (
        Verdict(limit="cannot tell", message=_why_no_verdict(decision))
        if chosen is None
        else verdict_at(measurements, chosen, time_law)
    )
    scaling = scaling_of(measurements.record, chosen)
    tail = training = None
    question = ""
    discovery = measurements.record.discovery
    if discovery is not None and chosen is not None:
        at_size = measurements.discovery_at(chosen) or discovery
        tail = _tail(measurements, at_size, chosen, (time_law, memory_law), unavailable)
        training = _training(measurements, discovery, chosen)
        question = loss_question(measurements.record, at_size, chosen)
    if discovery is not None and _why_no_training(discovery):
        unavailable["training"] = _why_no_training(discovery)
    if discovery is not None and discovery.why_epoch_unknown:
        unavailable["epoch"] = discovery.why_epoch_unknown
        unavailable["epoch_s"] = "its length is not taken at its word"
    if why_unknown(measurements):
        unavailable["memory_creep"] = why_unknown(measurements)
    check = _tail_check(measurements, tail)
    several = len(measurements.best_timed) > 1
    micro_batches = None if training is None else training.micro_batches
    unchanged = decision.standing == "asked for"
    advice = Advice(
        goal=measurements.goal,
        headline=headline(
            recommended,
            None if record.observed is not None else decision,
            None if discovery is None else discovery.primary,
        ),
        reason=reason(measurements, decision, recommended, native),
        sureness=_sureness(measurements, decision),
        recommended=recommended,
        fastest=_optional(measurements, fastest(measurements) if several else None),
        fastest_is_open=several and fastest_is_open(measurements, decision),
        largest=_optional(measurements, _largest(measurements)),
        native=native,
        standing=decision.standing,
        considered=decision.considered,
        against_own=decision.ratio,
        sizes=tuple(_choice(measurements, size) for size in sorted(measurements.sizes_that_ran)),
        change="" if unchanged else change(measurements.record, chosen, micro_batches),
        change_check="" if unchanged else change_check(measurements.record, chosen),
        verdict=verdict,
        training=training,
        tail=tail,
        tail_check=check,
        memory_law=memory_law,
        time_law=time_law,
        prior_law=_prior_law(measurements, unavailable),
        findings=worst_first(
            [
                *findings_of(measurements, chosen, tail, check),
                *distribution_findings(measurements, chosen, scaling),
            ]
        ),
        scaling=scaling,
        loss_question=question,
        by_tokens=measurements.rated_by_tokens,
        orders=None if chosen is None else estimates_at(measurements, chosen),
        memory_risk=_memory_risk(measurements, unavailable),
        axis="samples" if discovery is None else discovery.axis,
        size_name="batch_size" if discovery is None else discovery.primary.size_name,
        unavailable=unavailable,
    )
    return with_observed(measurements, advice)


def _why_no_verdict(decision: Decision) -> str:
    if decision.because.rule == "nothing larger":
        return "nothing above the script's own size was timed"
    if decision.because.rule == "too early":
        return "no size was timed"
    if decision.standing == "not compared":
        return "the script's own size was not timed"
    return "nothing ran"


def _largest(measurements: Measurements) -> int | None:
    """The largest size that ran, where there is more than one."""
    sizes = measurements.sizes_that_ran
    return max(sizes) if len(sizes) > 1 else None


def _choice(measurements: Measurements, size: int) -> Choice:
    trials = measurements.trials_of(size)
    memory = measurements.trusted_memory.get(size)
    samples_per_s = measurements.shown(size, "samples_per_s")
    step_s = measurements.shown(size, "step_s")
    every = [trial for trial in measurements.timed if trial.batch_size == size]
    flops = flop_rate(every, step_s, measurements.record.device)
    return Choice(
        batch_size=size,
        trial=trials[-1].ordinal,
        samples_per_s=samples_per_s,
        step_s=step_s,
        peak_bytes=None if memory is None else memory.peak_bytes,
        epoch_s=_epoch(measurements, samples_per_s, trials[-1]),
        samples_per_joule=_per_joule(trials),
        real_tokens_per_s=real_rate(samples_per_s, measurements.tokens_a_sample),
        epoch_padding=measurements.epoch_padding.get(size),
        flops=None if isinstance(flops, str) else flops,
        unavailable={"flops": flops} if isinstance(flops, str) else {},
    )


def _per_joule(trials: Sequence[Trial]) -> float | None:
    values = [value for value in map(samples_per_joule, trials) if value is not None]
    return sum(values) / len(values) if values else None


def _memory_risk(measurements: Measurements, unavailable: dict[str, str]) -> MemoryRisk | None:
    """The chance that an epoch runs out of memory, by size, where lengths were looked at."""
    risk = measurements.length_risk
    if isinstance(risk, str):
        if risk:
            unavailable["memory_risk"] = risk
        return None
    refused = {trial.batch_size for trial in measurements.failed}
    return risk_record(risk, [*(measurements.sizes_that_ran | refused)])


def _optional(measurements: Measurements, size: int | None) -> Choice | None:
    return None if size is None else _choice(measurements, size)


def _epoch(measurements: Measurements, rate: Spread | None, trial: Trial) -> Spread | None:
    """Seconds for a process's samples of one epoch at this rate; training steps only.

    Slow steps of the script's own (logging, saving) are part of it, as often as they were seen.
    Samples that a collate function leaves out are not.
    """
    num_samples = measurements.epoch_samples
    if num_samples is None or rate is None:
        return None
    slow = 1.0
    if trial.quality is not None and trial.step_s is not None and trial.quality.num_steps:
        slow += trial.quality.slow_s / (trial.step_s.median * trial.quality.num_steps)
    discovery = measurements.record.discovery
    by_budget = discovery is not None and discovery.axis != "samples"
    share = 1.0 if by_budget else trial.arrived_share
    return inverse(rate, num_samples * share * slow)


def _time_law(measurements: Measurements, unavailable: dict[str, str]) -> TimeLaw | None:
    times = {
        size: trial.step_s.median
        for size, trial in steady(measurements.best_timed).items()
        if trial.step_s is not None
    }
    law = fit_time(times)
    if isinstance(law, str):
        unavailable["time_law"] = law
        return None
    return law


def _memory_law(measurements: Measurements, unavailable: dict[str, str]) -> MemoryLaw | None:
    target = measurements.target_bytes
    if target is None:
        unavailable["memory_law"] = "the device's memory is unknown"
        return None
    peaks = {size: memory.peak_bytes for size, memory in measurements.trusted_memory.items()}
    law = fit_memory(peaks, target)
    if isinstance(law, str):
        unavailable["memory_law"] = law
        return None
    return law


def _prior_law(measurements: Measurements, unavailable: dict[str, str]) -> PriorLaw | None:
    law = stated(measurements)
    if isinstance(law, str):
        unavailable["prior_law"] = law
        return None
    return law


def _tail(
    measurements: Measurements,
    discovery: Discovery,
    size: int,
    laws: tuple[TimeLaw | None, MemoryLaw | None],
    unavailable: dict[str, str],
) -> Tail | None:
    """The end of the epoch; sizes near by stay within memory, ranked by the law of step times."""
    time_law, memory_law = laws
    cap = largest_allowed(measurements)
    bad = measurements.smallest_bad
    if bad is not None:
        cap = min(cap, bad - 1)
    if memory_law is not None:
        largest_run = max(measurements.sizes_that_ran, default=1)
        cap = min(cap, max(memory_law.largest_estimate, largest_run))
    tail = tail_of(
        discovery,
        size,
        loss=known_loss(measurements.record) or "mean",
        largest=cap,
        predict=None if time_law is None else time_law.samples_per_s,
        taken=measurements.multiples.sure,
    )
    if isinstance(tail, str):
        unavailable["tail"] = tail
        return None
    return tail


def _training(measurements: Measurements, discovery: Discovery, size: int) -> Training | None:
    """Finds how the training changes with this size; `None` where its steps are not known."""
    if _why_no_training(discovery):
        return None
    return training_of(
        discovery,
        size,
        keep=measurements.goal.keep_effective_batch,
        num_ranks=num_ranks(measurements.record),
    )


def _why_no_training(discovery: Discovery) -> str:
    """Why nobody knows what a size does to the training; empty where that is known."""
    unknown = discovery.why_own_unknown
    return f"the script's own size: {unknown}" if unknown else discovery.why_steps_unknown


_NOT_EXECUTED = ("interrupted", "script_ended")
"""Ends of a tail's trial that say nothing about a step of its length."""


def _tail_check(measurements: Measurements, tail: Tail | None) -> TailCheck | None:
    """Finds the check of a step of the last batch's length, or of one sample if that is unknown."""
    wanted = 1 if tail is None else tail.last_batch
    for trial in reversed(measurements.record.trials):
        if trial.purpose != "tail" and tail is None:
            continue
        if trial.tail is None or trial.tail.outcome in _NOT_EXECUTED:
            continue
        if wanted and trial.tail.num_samples == wanted:
            return trial.tail
    return None


def _sureness(
    measurements: Measurements, decision: Decision
) -> Literal["confirmed", "not confirmed", "measured once", "partial", "none"]:
    size = decision.size
    if size is None:
        return "none"
    in_turn = any(size in turns.sizes for turns in measurements.confirmed_turns)
    if not in_turn and not any(t.batch_size == size for t in measurements.confirmations):
        return "measured once" if measurements.record.state == "finished" else "partial"
    in_doubt = decision.standing == "too noisy" or decision.against is not None
    return "confirmed" if agrees(measurements, size) and not in_doubt else "not confirmed"
