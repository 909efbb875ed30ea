"""The page of a plan over records of several types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...reports.blocks import Block, Charts, Code, Document, Facts, Section, Shown, paragraphs
from ...reports.chart import Chart, Series, rounded
from ...reports.report import Column, Fact, Finding, Row, Table
from ...reports.words.wording import (
    beside_value,
    clean,
    evidence_text,
    measured,
    pad_digits,
    plural,
)
from ...units import format_seconds
from .records import ClusterPlan, PlanCard, PlanOption, PlanShare, RankPoint
from .words import snippet_of_shares

DIGITS = 0.03
"""Relative precision of the shown figures: as if known to 3 %, so three digits."""
ESTIMATE = "All numbers but those of one GPU alone are estimates."
WEIGHTS = (
    "Each rank's mean loss is multiplied by its weight, or samples on slow GPUs count more than "
    "the others. BatchNorm sees its own rank's samples only; SyncBatchNorm sees all."
)
TO_PASTE = "Sampler and loss weight to paste"
EFFICIENCY = (
    "efficiency: samples/s over what all GPUs would do together, each alone at its own size."
)


def build_plan_page(plan: ClusterPlan) -> Document:
    """Everything that the terminal, HTML and Markdown show of a plan."""
    sections = [_cards(plan)]
    if plan.options and plan.options[0].kind == "plan":
        sections.append(_shares(plan, plan.options[0]))
    if plan.options:
        sections.append(_options(plan))
    return Document(
        title=clean(f"plan for {plan.script}"),
        headline=clean(_headline(plan)),
        blocks=(
            *paragraphs(map(clean, _notices(plan)), "warning"),
            *sections,
            *_forecasts(plan),
            *_findings(plan),
            _records(plan),
        ),
    )


def _notices(plan: ClusterPlan) -> list[str]:
    return [
        f"{name.capitalize()} is left out of every step time: {reason}."
        for name, reason in plan.unavailable.items()
    ]


def _findings(plan: ClusterPlan) -> tuple[Section, ...]:
    findings = tuple(
        Finding(
            severity=finding.severity,
            message=clean(f"{finding.message[0].upper()}{finding.message[1:]}."),
            evidence=clean(evidence_text(finding.evidence, finding.message)),
            remedy=clean(finding.remedy),
            estimate=finding.confidence == "estimate",
        )
        for finding in plan.findings
    )
    return (Section(title="Findings", blocks=findings),) if findings else ()


def _records(plan: ClusterPlan) -> Section:
    facts = [(card.name, f"{card.device}, {card.record}") for card in plan.cards]
    facts += [(name, f"left out: {reason}") for name, reason in plan.left_out.items()]
    shown = tuple(Fact(label=clean(label), text=clean(text)) for label, text in facts)
    return Section(title="The records", blocks=(Facts(facts=shown),), shown="files")


def _headline(plan: ClusterPlan) -> str:
    if not plan.options:
        known = sorted(
            (card for card in plan.cards if card.samples_per_s is not None),
            key=lambda card: -card.samples_per_s.median,  # type: ignore[union-attr]
        )
        if len(plan.cards) == 1 or not known:
            return f"One {plan.cards[0].name}: batch {plan.cards[0].recommended}"
        sizes = ", ".join(f"{card.name} {card.recommended}" for card in plan.cards)
        doubt = any(finding.message.startswith("cannot tell") for finding in plan.findings)
        if doubt or len(known) < len(plan.cards):
            return f"Cannot tell which card is quickest. Batch size of each: {sizes}"
        return f"{known[0].name} is quickest. Batch size of each: {sizes}"
    best = plan.options[0]
    if best.kind == "one GPU":
        quickest = _quickest(plan.options)
        text = f"{best.name} is quickest"
        if len(quickest) > 1:
            text = f"{' and '.join(quickest)} are equally quick, within {100 * DIGITS:.0f} %"
        return f"One GPU at {plan.global_batch} samples a step: {text} (estimate)"
    sizes = ", ".join(_share_words(share) for share in best.shares)
    return f"{plan.global_batch} samples a step over {plural(best.num_gpus, 'GPU')}: {sizes}"


def _quickest(options: Sequence[PlanOption]) -> list[str]:
    """The first option, and those whose step is as long as far as the digits tell."""
    known = [(option.name, option.step_s) for option in options if option.step_s is not None]
    return [name for name, step_s in known if step_s <= known[0][1] * (1 + DIGITS)] if known else []


def _share_words(share: PlanShare) -> str:
    each = f"{share.batch_size}"
    if share.micro_batches > 1:
        each += f" in {share.micro_batches} micro-batches"
    return f"{share.num_gpus} x {share.name} with {each}"


def _cards(plan: ClusterPlan) -> Section:
    """A row for each type, one GPU alone; columns that nothing fills are left out."""
    cards = plan.cards
    columns = {
        "GPU": [card.name for card in cards],
        "count": [str(card.count) if card.count else "-" for card in cards],
        "batch": [str(card.recommended) for card in cards],
        "samples/s": [_speed(card) for card in cards],
        "tokens/s": [_digits(card.tokens_per_s) for card in cards],
        "epoch": [_time(card.epoch_s) for card in cards],
        "samples/J": [_digits(card.samples_per_joule) for card in cards],
        "tokens/J": [_digits(card.tokens_per_joule) for card in cards],
        "price/h": [_digits(card.price) for card in cards],
        "samples/price": [_digits(card.samples_per_price) for card in cards],
        "tokens/price": [_digits(card.tokens_per_price) for card in cards],
        "at most": [f"{card.largest} ({_cap(card)})" for card in cards],
    }
    note = "at most: in one micro-batch; larger parts of a step are accumulated."
    return _section("One GPU alone", columns, [note])


def _cap(card: PlanCard) -> str:
    return {"ran": "ran", "memory law": "estimate", "twin": "twin"}[card.largest_source]


def _speed(card: PlanCard) -> str:
    return "-" if card.samples_per_s is None else beside_value(*measured(card.samples_per_s))


def _shares(plan: ClusterPlan, best: PlanOption) -> Section:
    shares = best.shares
    columns = {
        "GPU": [share.name for share in shares],
        "GPUs": [str(share.num_gpus) for share in shares],
        "batch": [str(share.batch_size) for share in shares],
        "micro-batches": [str(share.micro_batches) for share in shares],
        "predicted ms": [_ms(share.predicted_step_s) for share in shares],
        "weight": [f"{share.gradient_weight:.3f}" for share in shares],
    }
    multiple = f" Sizes are multiples of {plan.granularity}." if plan.granularity > 1 else ""
    predicted = (
        f"Predicted (estimate): {_time(best.step_s)} a step{_sync(best)}, "
        f"{_digits(best.samples_per_s)} samples/s, efficiency {_pct(best.efficiency)}."
    )
    texts = [f"Global batch {plan.global_batch}: {plan.global_batch_source}.{multiple}", predicted]
    if plan.num_samples is not None and plan.num_samples % plan.global_batch:
        steps, rest = divmod(plan.num_samples, plan.global_batch)
        texts.append(
            f"An epoch has {plural(steps, 'step')}; its last {rest} of {plan.num_samples} samples "
            "are left out, others in each epoch."
        )
    if best.num_gpus > 1:
        texts.append(WEIGHTS)
    if plan.link is not None and "sync_s" not in plan.link.unavailable:
        word = "measured" if plan.link.confidence == "measured" else "an estimate"
        texts.append(f"Tsync is {word}: {plan.link.source}.")
    code = []
    if best.num_gpus > 1:
        snippet = Code(text=snippet_of_shares(shares))
        code = [Section(title=TO_PASTE, blocks=(snippet,), shown="files", folded=True)]
    return _section("Split plan", columns, texts, *code)


def _sync(option: PlanOption) -> str:
    if option.num_gpus < 2:
        return ""
    if option.sync_s is None:
        return " without synchronisation"
    return f" with {_ms(option.sync_s)} ms of synchronisation"


def _options(plan: ClusterPlan) -> Section:
    options = plan.options
    first = options[0].samples_per_s
    columns = {
        "division (estimates)": [option.name for option in options],
        "GPUs": [str(option.num_gpus) for option in options],
        "step ms": [_ms(option.step_s) for option in options],
        "samples/s": [_digits(option.samples_per_s) for option in options],
        "of the plan": [_of(option.samples_per_s, first) for option in options],
        "efficiency": [_pct(option.efficiency) for option in options],
        "tokens/s": [_digits(option.tokens_per_s) for option in options],
        "epoch": [_time(option.epoch_s) for option in options],
        "samples/J": [_digits(option.samples_per_joule) for option in options],
        "tokens/J": [_digits(option.tokens_per_joule) for option in options],
        "samples/price": [_digits(option.samples_per_price) for option in options],
        "tokens/price": [_digits(option.tokens_per_price) for option in options],
    }
    reasons = [
        f"{option.name}: {option.unavailable['step_s']}."
        for option in options
        if "step_s" in option.unavailable
    ]
    return _section("Compared", columns, [EFFICIENCY, *reasons])


def _forecasts(plan: ClusterPlan) -> list[Section]:
    """A table for each type and for the mix; a window of text shows the plan's own."""
    groups: dict[tuple[str, ...], list[RankPoint]] = {}
    for point in plan.forecast:
        names = tuple(text.split(" x ", 1)[1] for text in point.cards)
        groups.setdefault(names, []).append(point)
    if not groups:
        return []
    own = max(groups, key=len)
    mixed = [names for names in groups if len(names) > 1]
    shown = mixed[0] if mixed else own
    return [
        _forecast(names, points, kind, brief=names == shown or len(groups) == 1)
        for names, points in groups.items()
        for kind in ("weak", "strong")
    ]


def _forecast(
    names: tuple[str, ...], group: Sequence[RankPoint], kind: str, *, brief: bool
) -> Section:
    points = [point for point in group if point.scaling == kind]
    columns = {
        "GPUs": [_number(point) for point in points],
        "batch": [_sizes(point) for point in points],
        "Tcomp ms": [_ms(point.compute_s) for point in points],
        "Tsync ms": [_ms(point.sync_s) for point in points],
        "step ms": [_ms(point.step_s) for point in points],
        "samples/s": [_digits(point.samples_per_s) for point in points],
        "epoch": [_time(point.epoch_s) for point in points],
        "speed-up": [_factor(point.speedup) for point in points],
        "efficiency": [_pct(point.efficiency) for point in points],
    }
    words = {
        "weak": "the batch of a GPU stays",
        "strong": f"{points[0].global_batch} samples a step stay",
    }[kind]
    title = f"Forecast for {' and '.join(names)}, {kind} scaling: {words}"
    texts = []
    if kind == "weak":
        texts.append("Speed-up: in samples/s, over one GPU alone, the quickest of the row.")
    if any(point.confidence == "measured" for point in points):
        texts.append("*: so many ranks were measured; all else is an estimate.")
    reasons = dict.fromkeys(reason for point in points for reason in point.unavailable.values())
    texts += [f"-: {reason}." for reason in reasons]
    charts = charts_of("-".join(names), group) if kind == "weak" else ()
    more = (Charts(charts=charts, together=True),) if charts else ()
    return _section(title, columns, texts, *more, shown="everywhere" if brief else "files")


def _number(point: RankPoint) -> str:
    star = "*" if point.confidence == "measured" else ""
    if len(point.cards) < 2:
        return f"{point.num_gpus}{star}"
    counts = " + ".join(text.split(" x ", 1)[0] for text in point.cards)
    return f"{point.num_gpus} = {counts}"


def _sizes(point: RankPoint) -> str:
    return " + ".join(map(str, point.batch_sizes)) or "-"


def _section(
    title: str,
    columns: Mapping[str, Sequence[str]],
    texts: Sequence[str],
    *more: Block,
    shown: Shown = "everywhere",
) -> Section:
    """A table, and what is said of it."""
    said = paragraphs(map(clean, texts))
    return Section(title=clean(title), blocks=(_table(title, columns), *said, *more), shown=shown)


def _table(title: str, columns: Mapping[str, Sequence[str]]) -> Table:
    """Without columns that hold nothing."""
    kept = {name: cells for name, cells in columns.items() if set(cells) - {"-"}}
    rows = zip(*kept.values(), strict=True)
    return Table(
        title=clean(title),
        columns=tuple(Column(title=name, left=place == 0) for place, name in enumerate(kept)),
        rows=tuple(Row(cells=tuple(map(clean, row))) for row in rows),
    )


def _of(value: float | None, whole: float | None) -> str:
    return "-" if value is None or not whole else f"x{value / whole:.2f}"


def _factor(value: float | None) -> str:
    return "-" if value is None else f"x{value:.2f}"


def _pct(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else _digits(1e3 * seconds)


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else format_seconds(seconds)


def _digits(value: float | None) -> str:
    return "-" if value is None else pad_digits(value, DIGITS)


# Charts of a forecast by number of GPUs.


def charts_of(key: str, points: Sequence[RankPoint]) -> tuple[Chart, ...]:
    """Speed-up and efficiency, with the batch of a GPU kept and with the global batch kept."""
    weak = [point for point in points if point.scaling == "weak"]
    strong = [point for point in points if point.scaling == "strong"]
    if len(weak) < 2:
        return ()
    numbers = tuple(float(point.num_gpus) for point in weak)
    lines = [("weak", "batch of a GPU kept", weak), ("strong", "global batch kept", strong)]

    def chart(name: str, title: str, field: str, unit: str, factor: float) -> Chart:
        return Chart(
            key=f"{key}-{name}",
            title=title,
            x_label="GPUs",
            x_scale="log",
            x=numbers,
            x_ticks=numbers,
            x_names=tuple(f"{number:.0f}" for number in numbers),
            y_label=title.split(" ", maxsplit=1)[0].lower(),
            unit=unit,
            series=tuple(
                Series(
                    key=line,
                    label=label,
                    kind="estimate",
                    color=place + 1,
                    values=tuple(_value(point, field, factor) for point in points),
                )
                for place, (line, label, points) in enumerate(lines)
            ),
        )

    return (
        chart("speedup", "Speed-up over one GPU (estimate)", "speedup", "x", 1.0),
        chart("efficiency", "Efficiency (estimate)", "efficiency", "%", 100.0),
    )


def _value(point: RankPoint, field: str, factor: float) -> float | None:
    value: float | None = getattr(point, field)
    return None if value is None else rounded(factor * value)
