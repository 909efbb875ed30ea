"""The answer: one size chosen by one objective under constraints, and what explains it.

Pure: a record and nothing else goes in. Only sizes that ran are recommended, and what a fresh
process confirmed comes before what the search saw.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from ..records import (
    Advice,
    Choice,
    Goal,
    LossCheck,
    MemoryLaw,
    RunRecord,
    Spread,
    Tail,
    TailCheck,
    TimeLaw,
    Trial,
    Verdict,
)
from ..spread import inverse
from .confirm import agrees, finalists
from .distribution import num_ranks, scaling_of
from .distribution_findings import distribution_findings
from .energy import samples_per_joule
from .facts import (
    best_timed,
    confirmations,
    own_size,
    pooled,
    ran,
    smallest_bad,
    target_bytes,
    trusted_memory,
    undisturbed,
    usable,
    was_compared,
)
from .findings import by_severity, findings_of
from .knee import fastest
from .laws import fit_memory, fit_time
from .loss import loss_of, matters
from .observed import with_observed
from .own_size import Decision, against_own, standing
from .reasons import change, headline, reason
from .scaling import steady
from .sizes import largest_allowed
from .tail import own_samples, tail_of
from .training import training_of, with_steps_seen
from .verdict import verdict_at


def advise(record: RunRecord, goal: Goal | None = None) -> Advice:
    """The advice for a record, under its own goal or another one.

    Args:
        goal: asks another question of the same measurements.
    """
    another = goal is not None and goal != record.goal
    if goal is not None:
        record = _under(record, goal)
    record = with_steps_seen(record)
    unavailable: dict[str, str] = {}
    time_law = _time_law(record, unavailable)
    memory_law = _memory_law(record, unavailable)
    wanted = _choose(record, another=another)
    decision = _decide(record, wanted)
    said = decision if record.observed is None else None
    chosen = decision.size
    recommended = None if chosen is None else _choice(record, chosen)
    tail = _tail(record, chosen, time_law, memory_law, unavailable)
    check = _tail_check(record, tail)
    verdict = (
        Verdict(limit="cannot tell", message=_why_no_verdict(wanted))
        if chosen is None
        else verdict_at(record, chosen, time_law)
    )
    native = record.discovery.native_batch_size if record.discovery is not None else None
    native_choice = (
        _choice(record, native)
        if native is not None and any(one.batch_size == native for one in ran(record))
        else None
    )
    training = None
    unknown = record.discovery.why_steps_unknown if record.discovery is not None else ""
    if unknown:
        unavailable["training"] = unknown
    elif record.discovery is not None and chosen is not None:
        training = training_of(
            record.discovery,
            chosen,
            keep=record.goal.keep_effective_batch,
            num_ranks=num_ranks(record),
        )
    scaling = scaling_of(record, chosen)
    advice = Advice(
        goal=record.goal,
        headline=headline(recommended, said),
        reason=reason(record, recommended, native_choice, said),
        sureness=_sureness(record, chosen),
        recommended=recommended,
        fastest=_optional(record, fastest(record) if len(best_timed(record)) > 1 else None),
        largest=_optional(record, _largest(record)),
        native=native_choice,
        standing=decision.standing,
        considered=decision.considered,
        against_own=decision.ratio,
        sizes=tuple(
            _choice(record, size) for size in sorted({one.batch_size for one in ran(record)})
        ),
        change=""
        if decision.standing == "asked for"
        else change(record, chosen, None if training is None else training.micro_batches),
        verdict=verdict,
        training=training,
        tail=tail,
        tail_check=check,
        memory_law=memory_law,
        time_law=time_law,
        findings=by_severity(
            [
                *findings_of(record, chosen, tail, check),
                *distribution_findings(record, chosen, scaling),
            ]
        ),
        scaling=scaling,
        loss_check=_loss_check(record, chosen),
        unavailable=unavailable,
    )
    return with_observed(record, advice)


def _under(record: RunRecord, goal: Goal) -> RunRecord:
    return msgspec.structs.replace(record, goal=goal)


def _choose(record: RunRecord, *, another: bool) -> int | None:
    """The objective under its constraints: ran, fits, and not refused by the confirmation.

    Args:
        another: the goal is not the one that was confirmed; its size was measured once.
    """
    confirmed = {one.batch_size for one in confirmations(record)}
    proposed = finalists(record)
    runs = {one.batch_size for one in ran(record) if usable(record, one.batch_size)}
    for size in proposed:
        if size in runs and (size in confirmed or not confirmed or another):
            return size
    if record.goal.kind == "energy" and not proposed:
        return None
    if record.goal.kind == "memory":
        return max(runs, default=None)
    left = [size for size in best_timed(record) if size in runs]
    return max(left, key=lambda size: _throughput(record, size), default=None)


def _decide(record: RunRecord, wanted: int | None) -> Decision:
    """Whether the size of the goal may be recommended over the script's own."""
    if wanted is None or record.observed is not None:  # a callback compares nothing
        return Decision(wanted, "own")
    found = standing(record, wanted)
    compared = against_own(record, wanted)
    ratio = None if compared is None or compared.contended else compared.ratio
    if found in ("worse", "too noisy"):
        own = own_size(record)
        return Decision(own, found, considered=None if wanted == own else wanted, ratio=ratio)
    if found == "not compared":
        return Decision(None, found, considered=wanted)
    return Decision(wanted, found, ratio=ratio)


def _why_no_verdict(wanted: int | None) -> str:
    if wanted is None:
        return "nothing ran"
    return "the script's own size was not timed"


def _largest(record: RunRecord) -> int | None:
    """The largest size that ran, where there is more than one."""
    sizes = {trial.batch_size for trial in ran(record)}
    return max(sizes) if len(sizes) > 1 else None


def _throughput(record: RunRecord, size: int) -> float:
    spread = best_timed(record)[size].samples_per_s
    return spread.median if spread is not None else 0.0


def _trials_of(record: RunRecord, size: int) -> list[Trial]:
    """The trials that speak for a size: those of the confirmation, else the last of the search."""
    confirmed = [one for one in confirmations(record) if one.batch_size == size]
    if confirmed:
        return undisturbed(confirmed)
    timed = best_timed(record)
    if size in timed:
        return [timed[size]]
    return [one for one in ran(record) if one.batch_size == size][-1:]


def _choice(record: RunRecord, size: int) -> Choice:
    trials = _trials_of(record, size)
    memory = trusted_memory(record).get(size)
    compared = best_timed(record).get(size) if was_compared(record, size) else None
    speaks = trials if compared is None else [compared]
    samples_per_s = pooled(speaks, "samples_per_s")
    return Choice(
        batch_size=size,
        trial=trials[-1].ordinal,
        samples_per_s=samples_per_s,
        step_s=pooled(speaks, "step_s"),
        peak_bytes=None if memory is None else memory.peak_bytes,
        epoch_s=_epoch(record, samples_per_s, trials[-1]),
        samples_per_joule=_per_joule(trials),
    )


def _per_joule(trials: list[Trial]) -> float | None:
    values = [one for one in map(samples_per_joule, trials) if one is not None]
    return sum(values) / len(values) if values else None


def _optional(record: RunRecord, size: int | None) -> Choice | None:
    return None if size is None else _choice(record, size)


def _epoch(record: RunRecord, samples_per_s: Spread | None, trial: Trial) -> Spread | None:
    """Seconds for a process's samples of one epoch at this rate; training steps only.

    Slow steps of the script's own (logging, saving) are part of it, as often as they were seen.
    Samples that a collate function leaves out are not.
    """
    if record.discovery is None or samples_per_s is None:
        return None
    num_samples = own_samples(record.discovery)
    if num_samples is None:
        return None
    slow = 1.0
    if trial.quality is not None and trial.step_s is not None and trial.quality.num_steps:
        slow += trial.quality.slow_s / (trial.step_s.median * trial.quality.num_steps)
    return inverse(samples_per_s, num_samples * trial.arrived_share * slow)


def _time_law(record: RunRecord, unavailable: dict[str, str]) -> TimeLaw | None:
    times = {
        size: one.step_s.median
        for size, one in steady(best_timed(record)).items()
        if one.step_s is not None
    }
    law = fit_time(times)
    if isinstance(law, str):
        unavailable["time_law"] = law
        return None
    return law


def _memory_law(record: RunRecord, unavailable: dict[str, str]) -> MemoryLaw | None:
    target = target_bytes(record)
    if target is None:
        unavailable["memory_law"] = "the device's memory is unknown"
        return None
    law = fit_memory({size: one.peak_bytes for size, one in trusted_memory(record).items()}, target)
    if isinstance(law, str):
        unavailable["memory_law"] = law
        return None
    return law


def _tail(
    record: RunRecord,
    size: int | None,
    time_law: TimeLaw | None,
    memory_law: MemoryLaw | None,
    unavailable: dict[str, str],
) -> Tail | None:
    """The end of the epoch; sizes near by stay within memory, ranked by the law of step times."""
    if record.discovery is None or size is None:
        return None
    cap = largest_allowed(record)
    bad = smallest_bad(record)
    if bad is not None:
        cap = min(cap, bad - 1)
    if memory_law is not None:
        largest_run = max((one.batch_size for one in ran(record)), default=1)
        cap = min(cap, max(memory_law.largest_estimate, largest_run))

    tail = tail_of(
        record.discovery,
        size,
        loss=loss_of(record),
        largest=cap,
        predict=None if time_law is None else time_law.samples_per_s,
    )
    if isinstance(tail, str):
        unavailable["tail"] = tail
        return None
    return tail


def _loss_check(record: RunRecord, size: int | None) -> LossCheck | None:
    """What was measured of the loss, where the end of the epoch depends on it at this size."""
    if record.discovery is None or size is None or not matters(record.discovery, size):
        return None
    return record.loss


_NOT_EXECUTED = ("interrupted", "script_ended")
"""Ends of a tail's trial that say nothing about a step of its length."""


def _tail_check(record: RunRecord, tail: Tail | None) -> TailCheck | None:
    """What a step of the last batch's length did; where that is unknown, one of a single sample."""
    wanted = 1 if tail is None else tail.last_batch
    for trial in reversed(record.trials):
        if trial.purpose != "tail" and tail is None:
            continue
        if trial.tail is None or trial.tail.outcome in _NOT_EXECUTED:
            continue
        if wanted and trial.tail.num_samples == wanted:
            return trial.tail
    return None


def _sureness(
    record: RunRecord, size: int | None
) -> Literal["confirmed", "not confirmed", "measured once", "partial", "none"]:
    if size is None:
        return "none"
    if any(one.batch_size == size for one in confirmations(record)):
        return "confirmed" if agrees(record, size) else "not confirmed"
    return "measured once" if record.state == "finished" else "partial"
