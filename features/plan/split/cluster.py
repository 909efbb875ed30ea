"""A plan for one job over GPUs of several types and hosts, from the records of each type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import lcm

from ....advisor.split.allocation import MULTIPLES, PORTIONS, multiple_in
from ....errors import UsageError
from ....records import worst_first
from ..records import ClusterPlan, Link, PlanKind, PlanOption
from .cards import Card, Probed, card_of, num_samples_of, plan_card, recommended_of
from .cluster_findings import findings_of, predictions_apart, remarks_of_left_out
from .cluster_forecast import forecast_of
from .cluster_options import (
    all_types,
    best_types,
    by_weight,
    equal_sizes,
    num_gpus_of,
    option_of,
)
from .links import Job
from .same_job import differences, why_not_one_job
from .type_allocation import Sizes

PROBE_AGAIN = "Probe again: batchadvisor run SCRIPT, with a budget for three sizes or more."


def plan_cluster(
    probed: Sequence[Probed],
    *,
    global_batch: int | None = None,
    link: Link | None = None,
    up_to: int = 64,
    left_out: Mapping[str, str] | None = None,
    multiple_of: int = 1,
) -> ClusterPlan:
    """The plan of a job.

    Args:
        probed: one record for each type; `count` 0 everywhere asks which of the cards to take.
        global_batch: samples of all GPUs in a step; the sum of the recommended sizes otherwise.
        link: where the time of synchronisation comes from.
        up_to: GPUs of the forecast.
        left_out: records that cannot be used, and why.
        multiple_of: every size is a multiple of it, and of what the records say of their script.

    Raises:
        UsageError: the records are of different jobs, or the numbers cannot work.
    """
    reason = why_not_one_job([(each.folder, each.record) for each in probed])
    if reason:
        raise UsageError(
            f"Records of different jobs have no common plan: {reason}.",
            "Plan the records of one script, with one model and one setting, together.",
        )
    least = lcm(multiple_of, *(multiple_in(each.record) for each in probed))
    without = dict(left_out or {})
    cards = []
    for each in probed:
        card = card_of(each, least)
        if not isinstance(card, str):
            cards.append(card)
        elif each.count:
            raise UsageError(
                f"Nothing can be planned with {each.name} ({each.folder}): {card}.", PROBE_AGAIN
            )
        else:
            without[each.name] = card
    if not cards:
        reasons = "; ".join(f"{name}: {why}" for name, why in without.items())
        raise UsageError(f"No record can be planned with. {reasons}.", PROBE_AGAIN)
    num_samples = num_samples_of(cards)
    job = Job(link, num_samples, least)
    used = [card for card in cards if card.count]
    for card in cards:
        if used and not card.count:
            without[card.name] = "it is not in --count"
    source = "the sum of the recommended sizes" if global_batch is None else "as asked"
    num_gpus = num_gpus_of(used)
    total = global_batch or sum(
        max(1, card.count) * recommended_of(card, least) for card in used or cards[:1]
    )
    _check(total, num_gpus, job)
    shown = tuple(plan_card(card, num_samples) for card in cards)
    portion = _granularity(used, total, least)
    options: tuple[PlanOption, ...] = ()
    if used:
        options = _options(used, total, portion, job)
    elif global_batch is not None:
        options = _one_of_each(cards, total, job)
    mixed = used if len(used) > 1 else []
    forecast = forecast_of(
        used or cards,
        mixed,
        job,
        up_to=up_to,
        global_batch=total if used or global_batch is not None else None,
    )
    findings = (
        *differences([(each.folder, each.record) for each in probed]),
        *findings_of(shown, options, used),
        *predictions_apart(cards, shown),
        *remarks_of_left_out(left_out or {}),
    )
    unavailable = {}
    why = job.sync_at(num_gpus or 2)[1]
    if why:
        unavailable["synchronisation"] = why
    return ClusterPlan(
        script=probed[0].record.script.path,
        global_batch=total,
        global_batch_source=source,
        granularity=portion,
        num_samples=num_samples,
        cards=shown,
        options=options,
        link=link,
        forecast=forecast,
        findings=worst_first(findings),
        left_out=without,
        unavailable=unavailable,
    )


def _check(total: int, num_gpus: int, job: Job) -> None:
    least = job.least
    if total % least or (least > 1 and total < num_gpus * least):
        raise UsageError(
            f"A global batch of {total} is no multiple of {least} with {least} for each GPU.",
            "Give a multiple as --global-batch, with one for each GPU at least.",
        )
    if total < num_gpus:
        raise UsageError(
            f"A global batch of {total} is fewer samples than there are GPUs ({num_gpus}).",
            "Give a larger --global-batch, or count fewer GPUs.",
        )
    if job.num_samples is not None and total > job.num_samples:
        raise UsageError(
            f"A step of {total} samples is more than the {job.num_samples} of the data set.",
            "Give a smaller --global-batch, or count fewer GPUs.",
        )


def _granularity(cards: Sequence[Card], total: int, least: int) -> int:
    """Picks, on GPUs, multiples that tensor cores like, if all sizes are such already and leave
    room.

    Args:
        least: what every size is a multiple of in any case.
    """
    if not cards or not all(card.member.cuda for card in cards):
        return least
    num_gpus = num_gpus_of(cards)
    for portion in (lcm(multiple, least) for multiple in MULTIPLES):
        fine = total >= PORTIONS * portion * num_gpus
        whole = all(card.member.recommended % portion == 0 for card in cards)
        if fine and whole and total % portion == 0:
            return portion
    return least


def _options(cards: Sequence[Card], total: int, portion: int, job: Job) -> tuple[PlanOption, ...]:
    """The plan; all types where it leaves some out; equal and proportional shares; one type."""
    best = best_types(cards, total, portion, job)
    assert best is not None  # every GPU can have a portion, and accumulates above its cap
    chosen, sizes = best

    def option(
        kind: PlanKind, name: str, these: Sequence[Card], its: Sequence[Sizes]
    ) -> PlanOption:
        return option_of(kind, name, these, its, everyone=cards, job=job)

    options = [option("plan", "as planned", chosen, sizes)]
    if len(chosen) < len(cards):
        whole = all_types(cards, total, portion, job)
        options.append(option("all types", "all types", cards, whole))
    if num_gpus_of(cards) > 1:
        rates = [card.rate for card in cards]
        options.append(
            option("equal shares", "equal shares", cards, equal_sizes(cards, total, job.least))
        )
        proportion = by_weight(cards, total, rates, job.least)
        options.append(
            option("in proportion to speed", "in proportion to speed", cards, proportion)
        )
    if len(cards) > 1:
        for card in cards:
            alone = best_types([card], total, portion, job)
            if alone is not None and tuple(chosen) != (card,):
                options.append(option("one type", f"{card.name} only", [card], alone[1]))
    return tuple(options)


def _one_of_each(cards: Sequence[Card], total: int, job: Job) -> tuple[PlanOption, ...]:
    """One GPU of each type by itself at the global batch, the quickest first."""
    options = [
        option_of("one GPU", f"one {card.name}", [card], (((total, 1),),), everyone=[card], job=job)
        for card in (replace(card, count=1) for card in cards)
    ]
    return tuple(sorted(options, key=lambda option: option.step_s or float("inf")))
