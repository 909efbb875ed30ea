"""A split plan in words: of a report, and for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from ....records import SplitOption, SplitPlan, SplitShare
from ....units import format_seconds
from ...report import Column, Row, SplitBar, SplitGroup, SplitSection, Table
from ...words.split_snippet import snippet
from ...words.wording import beside_value, clean, measured, pad_digits, plural

SHARES = ("device", "batch", "predicted ms", "measured ms", "weight", "at most")
OPTIONS = ("division (estimates)", "batch", "step ms", "samples/s", "of the plan")
DIGITS = 0.03
"""Relative precision of the shown figures: as if known to 3 %, so three digits."""
LEFT = {SHARES[0], OPTIONS[0], OPTIONS[1], SHARES[5]}
WEIGHTS = (
    "Each rank's mean loss is multiplied by its weight, or samples on slow devices count more "
    "than the others. BatchNorm sees its own rank's samples only; SyncBatchNorm sees all."
)


def section(split: SplitPlan | str) -> SplitSection:
    """The section on a plan, or on the reason why there is none."""
    if isinstance(split, str):
        return SplitSection(texts=(clean(f"Not available: {split}"),))
    return SplitSection(
        texts=tuple(clean(text) for text in (*sentences(split), WEIGHTS)),
        shares=_table("Split plan", SHARES, [share_row(share) for share in split.shares]),
        options=_table("Compared", OPTIONS, option_rows(split)),
        groups=tuple(_group(option) for option in split.options[:3] if option.step_s is not None),
        snippet=snippet(split),
        plan=split,
    )


def short_texts(split: SplitPlan | str) -> tuple[str, ...]:
    """Sentences on a plan that stand beside its tables in a terminal."""
    if isinstance(split, str):
        return (f"Not available: {split}",)
    return tuple(sentences(split))


def sentences(plan: SplitPlan) -> list[str]:
    """Says what the plan is, what it predicts, what it leaves out."""
    step, rate = format_seconds(plan.predicted_step_s), _digits(plan.predicted_samples_per_s)
    multiple = f" Sizes are multiples of {plan.granularity}." if plan.granularity > 1 else ""
    predicted = (
        f"Predicted (estimate): {step} a step, {rate} samples/s; the step times of the devices "
        f"differ by {plan.spread_pct:.1f}%."
    )
    texts = [
        f"Global batch {plan.global_batch}: {plan.global_batch_source}.{multiple}",
        predicted,
    ]
    texts += [f"{name.capitalize()}: {reason}." for name, reason in plan.unavailable.items()]
    beyond = [
        share for share in plan.shares if share.largest_source == "memory law" and _beyond(share)
    ]
    texts += [
        f"{share.device}: a batch of {share.batch_size} fits by the law of peak memory (estimate); "
        "none as large is known to have run there."
        for share in beyond
    ]
    joined = [share.device for share in plan.shares if share.time_source == "interpolated"]
    if joined:
        texts.append(
            f"Step times of {', '.join(joined)} lie between measured sizes, without a law."
        )
    if plan.num_samples is not None and plan.num_samples % plan.global_batch:
        steps, rest = divmod(plan.num_samples, plan.global_batch)
        texts.append(
            f"An epoch has {plural(steps, 'step')}; its last {rest} of "
            f"{plan.num_samples} samples are left out, others in each epoch."
        )
    texts += plan.remarks
    texts += [f"Left out: {name}: {reason}" for name, reason in plan.left_out.items()]
    return texts


def share_row(share: SplitShare) -> tuple[str, ...]:
    """The cells of a device below `SHARES`."""
    ran = "-" if share.step_s is None else beside_value(*measured(share.step_s, 1e3))
    sources = {"ran": "ran", "memory law": "estimate", "twin": f"as {share.twin_of}"}
    return (
        share.device,
        str(share.batch_size),
        _ms(share.predicted_step_s),
        ran,
        f"{share.gradient_weight:.3f}",
        f"{share.largest} ({sources[share.largest_source]})",
    )


def option_rows(plan: SplitPlan) -> list[tuple[str, ...]]:
    """The cells of every option below `OPTIONS`."""
    return [_option_row(option, plan) for option in plan.options]


def option_name(option: SplitOption) -> str:
    """`equal shares`, `cuda-0 alone`, `cuda-0 and cuda-2 only`."""
    if option.kind == "plan":
        return "as planned"
    if option.kind != "fastest only":
        return option.kind
    if len(option.devices) == 1:
        return f"{option.devices[0]} alone"
    return f"{', '.join(option.devices[:-1])} and {option.devices[-1]} only"


def _option_row(option: SplitOption, plan: SplitPlan) -> tuple[str, ...]:
    sizes = " + ".join(map(str, option.batch_sizes))
    if option.step_s is None or option.samples_per_s is None:
        reason = option.unavailable.get("step_s", "not known")
        return (option_name(option), sizes, "-", "-", reason)
    share = option.samples_per_s / plan.predicted_samples_per_s
    smaller = (
        f" ({option.global_batch} samples fit)" if option.global_batch < plan.global_batch else ""
    )
    return (
        option_name(option),
        sizes,
        _ms(option.step_s),
        _digits(option.samples_per_s),
        f"x{share:.2f}{smaller}",
    )


def _group(option: SplitOption) -> SplitGroup:
    bars = tuple(
        SplitBar(device=clean(name), batch_size=size, step_s=step_s)
        for name, size, step_s in zip(
            option.devices, option.batch_sizes, option.step_times_s, strict=True
        )
    )
    assert option.step_s is not None
    return SplitGroup(title=option_name(option), step_s=option.step_s, bars=bars)


def _table(title: str, header: Sequence[str], rows: Sequence[tuple[str, ...]]) -> Table:
    return Table(
        title=title,
        columns=tuple(Column(title=title, left=title in LEFT) for title in header),
        rows=tuple(Row(cells=tuple(clean(cell) for cell in row)) for row in rows),
    )


def _beyond(share: SplitShare) -> bool:
    return share.batch_size > share.largest_ran


def _ms(seconds: float) -> str:
    return _digits(1e3 * seconds)


def _digits(value: float) -> str:
    return pad_digits(value, DIGITS)
