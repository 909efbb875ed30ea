"""Findings on a plan over GPUs of several types, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....records import Evidence, Finding
from ....spread import ratio_of
from ..records import PlanCard, PlanOption
from .cards import Card

COSTS_LITTLE = 0.05
"""Leaving a type out is worth a remark if it costs less than this share."""
PREDICTION_GAP = 0.1
"""A predicted speed that is further from the measured interval, as a share, is worth a remark."""
WORTH_A_REMARK = 0.01
"""Predictions that differ by less are not worth a remark."""


def findings_of(
    cards: Sequence[PlanCard], options: Sequence[PlanOption], used: Sequence[Card]
) -> tuple[Finding, ...]:
    """Everything worth saying, whatever its weight."""
    counted = [card for card in cards if card.count or not used]
    findings = list(_verdict(counted))
    if used:
        findings += [
            *_types_left_out(options, used),
            *_little_lost(options),
            *_accumulates(options[0], used),
            *_never_ran(options[0], used),
        ]
    return (*findings, *_prices(counted, options))


def predictions_apart(cards: Sequence[Card], shown: Sequence[PlanCard]) -> tuple[Finding, ...]:
    """Types whose step times, over all sizes, miss what was measured at the recommended size."""
    findings = []
    for card, stored in zip(cards, shown, strict=True):
        measured = stored.samples_per_s
        if measured is None:
            continue
        if measured.low * (1 - PREDICTION_GAP) <= card.rate <= measured.high * (1 + PREDICTION_GAP):
            continue
        findings.append(
            Finding(
                rule="plan-apart",
                severity="warning",
                message=f"one {card.name} alone did {_rounded(measured.median)} samples/s at batch "
                f"{stored.recommended}, but the step times of all its sizes, from which the plan "
                f"is made, give {_rounded(card.rate)} there",
                remedy="Probe that type again when its machine is free: the time of a size is off.",
            )
        )
    return tuple(findings)


def remarks_of_left_out(reasons: Mapping[str, str]) -> tuple[Finding, ...]:
    """Records that cannot be read at all."""
    return tuple(
        Finding(
            rule="plan-unreadable",
            severity="error",
            message=f"{name} is left out: {reason}",
            remedy="Probe that type again, or continue its run with --resume.",
        )
        for name, reason in reasons.items()
    )


def _verdict(cards: Sequence[PlanCard]) -> list[Finding]:
    """Which of the cards is quickest, as far as their intervals tell, and which is cheapest."""
    if len(cards) < 2:
        return []
    findings = []
    known = sorted(
        (card for card in cards if card.samples_per_s is not None),
        key=lambda card: -card.samples_per_s.median,  # type: ignore[union-attr]
    )
    if len(known) >= 2:
        first, second = known[:2]
        assert first.samples_per_s is not None
        assert second.samples_per_s is not None
        ratio = ratio_of(first.samples_per_s, second.samples_per_s)
        text = (
            f"one {first.name} alone does x{ratio.median:.2f} (x{ratio.low:.2f} to "
            f"x{ratio.high:.2f}) the samples/s of one {second.name}, each at its own size"
        )
        if not ratio.is_interval or ratio.low <= 1:
            text = f"cannot tell whether {first.name} or {second.name} is quicker: {text}"
        findings.append(Finding(rule="plan-quickest", severity="info", message=text))
    for field, what in (("samples_per_price", "unit of price"), ("samples_per_joule", "joule")):
        rated = [card for card in cards if getattr(card, field) is not None]
        if len(rated) < 2:
            continue
        best = max(rated, key=lambda card: getattr(card, field))
        value = getattr(best, field)
        equal = [card for card in rated if _rounded(getattr(card, field)) == _rounded(value)]
        others = ", ".join(
            f"{card.name} {_rounded(getattr(card, field))}" for card in rated if card not in equal
        )
        names = " and ".join(card.name for card in equal)
        gives = "gives" if len(equal) == 1 else "give"
        findings.append(
            Finding(
                rule=f"plan-{field.replace('_', '-')}",
                severity="info",
                message=f"{names} alone {gives} the most samples per {what}: {_rounded(value)}"
                + (f" ({others})" if others else ""),
                confidence="estimate",
            )
        )
    return findings


def _rounded(value: float) -> str:
    """Three digits.

    >>> _rounded(3291234.0), _rounded(6.0953)
    ('3,290,000', '6.1')
    """
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 100 else f"{value:.3g}"


def _types_left_out(options: Sequence[PlanOption], used: Sequence[Card]) -> list[Finding]:
    plan = options[0]
    whole = next((option for option in options if option.kind == "all types"), None)
    if whole is None or plan.step_s is None or whole.step_s is None:
        return []
    taking_part = {share.name for share in plan.shares}
    names = ", ".join(card.name for card in used if card.name not in taking_part)
    return [
        Finding(
            rule="plan-drops",
            severity="warning",
            message=f"the plan leaves {names} out: with it a step is predicted to take "
            f"x{whole.step_s / plan.step_s:.2f} as long",
            evidence=(
                Evidence(metric="step with all types (ms)", value=1e3 * whole.step_s),
                Evidence(metric="step as planned (ms)", value=1e3 * plan.step_s),
            ),
            remedy=f"Use {names} for something else, or a larger --global-batch.",
            confidence="estimate",
        )
    ]


def _little_lost(options: Sequence[PlanOption]) -> list[Finding]:
    """One type alone that is nearly as quick as all."""
    plan = options[0]
    if plan.step_s is None:
        return []
    findings = []
    for option in options:
        if option.kind != "one type" or option.step_s is None:
            continue
        cost = option.step_s / plan.step_s - 1
        if WORTH_A_REMARK <= cost <= COSTS_LITTLE:
            findings.append(
                Finding(
                    rule="plan-nearly",
                    severity="info",
                    message=f"{option.name} is predicted to be only {cost:.1%} slower",
                    confidence="estimate",
                )
            )
    return findings


def _accumulates(plan: PlanOption, used: Sequence[Card]) -> list[Finding]:
    largest = {card.name: card.member.largest for card in used}
    names = {
        share.name: f"{share.name} ({share.micro_batches} micro-batches of at most "
        f"{largest[share.name]})"
        for share in plan.shares
        if share.micro_batches > 1
    }
    if not names:
        return []
    return [
        Finding(
            rule="plan-accumulates",
            severity="info",
            message=f"above the largest micro-batch that is known to fit the plan accumulates: "
            f"{', '.join(names.values())}",
            remedy="Each micro-batch is counted as a whole step, a little too long.",
            confidence="estimate",
        )
    ]


def _never_ran(plan: PlanOption, used: Sequence[Card]) -> list[Finding]:
    """Micro-batches that fit by the law of memory alone."""
    by_name = {card.name: card for card in used}
    sizes = [
        (share.name, by_name[share.name].steps.micro_size(share.batch_size))
        for share in plan.shares
    ]
    names = dict.fromkeys(
        f"{name} ({size})" for name, size in sizes if size > by_name[name].member.largest_ran
    )
    if not names:
        return []
    return [
        Finding(
            rule="plan-never-ran",
            severity="info",
            message=f"batches as large as these fit by the law of peak memory, and none as large "
            f"is known to have run: {', '.join(names)}",
            remedy="Run them once on that type: batchadvisor run --sizes ...",
            confidence="estimate",
        )
    ]


def _prices(cards: Sequence[PlanCard], options: Sequence[PlanOption]) -> list[Finding]:
    findings = []
    priced = [card for card in cards if card.price is not None]
    missing = [card.name for card in cards if card.price is None]
    if priced and missing:
        findings.append(
            Finding(
                rule="plan-price-missing",
                severity="warning",
                message=f"no price for {', '.join(missing)}: nothing is said of its cost",
                remedy=f"Add --price {missing[0]}=...",
            )
        )
    rated = [option for option in options if option.samples_per_price]
    if options and options[0] in rated and len(rated) > 1:
        plan = options[0]
        best = max(rated, key=lambda option: option.samples_per_price or 0.0)
        gain = (best.samples_per_price or 0.0) / (plan.samples_per_price or 1.0)
        if best is not plan and gain > 1 + WORTH_A_REMARK:
            findings.append(
                Finding(
                    rule="plan-cheaper",
                    severity="info",
                    message=f"{best.name} gives x{gain:.2f} the samples per unit of price, at "
                    f"x{(best.samples_per_s or 0.0) / (plan.samples_per_s or 1.0):.2f} the "
                    "samples/s",
                    confidence="estimate",
                )
            )
    return findings
