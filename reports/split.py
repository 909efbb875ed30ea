"""A split plan in words, for the terminal and for the report object."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from ..records import SplitOption, SplitPlan, SplitShare
from ..units import format_seconds
from .layout import Page
from .report import Column, Row, SplitBar, SplitGroup, SplitSection, Table
from .split_snippet import snippet
from .wording import clean, measured, pad_digits, plural

TITLE = "Split plan"
SHARES = ("device", "batch", "predicted ms", "measured ms", "weight", "at most")
OPTIONS = ("division (estimates)", "batch", "step ms", "samples/s", "of the plan")
DIGITS = 0.03
"""As if known to 3 %: three digits."""
LEFT = {SHARES[0], OPTIONS[0], OPTIONS[1], SHARES[5]}
WEIGHTS = (
    "Each rank's mean loss is multiplied by its weight, or samples on slow devices count more "
    "than the others. BatchNorm sees its own rank's samples only; SyncBatchNorm sees all."
)


def section(split: SplitPlan | str) -> SplitSection:
    """What a report shows of a plan, or of the reason why there is none."""
    if isinstance(split, str):
        return SplitSection(texts=(clean(f"Not available: {split}"),))
    return SplitSection(
        texts=tuple(clean(text) for text in (*sentences(split), WEIGHTS)),
        shares=_table("Split plan", SHARES, [share_row(one) for one in split.shares]),
        options=_table("Compared", OPTIONS, option_rows(split)),
        groups=tuple(_group(one) for one in split.options[:3] if one.step_s is not None),
        snippet=snippet(split),
        plan=split,
    )


def entries(page: Page, split: SplitPlan | str, folder: str) -> None:
    """The plan on a page of the terminal."""
    page.heading(TITLE)
    if isinstance(split, str):
        page.entry(f"Not available: {split}")
        return
    _columns(page, [SHARES, *(share_row(one) for one in split.shares)])
    for text in sentences(split):
        page.entry(text)
    page.blank()
    _columns(page, [OPTIONS, *option_rows(split)])
    page.blank()
    command = f"batchadvisor report {shlex.quote(folder)}"
    page.whole(command, label="Sampler and loss weight to paste: ")


def sentences(plan: SplitPlan) -> list[str]:
    """What the plan is, what it predicts, what it leaves out."""
    step, rate = format_seconds(plan.predicted_step_s), _digits(plan.predicted_samples_per_s)
    multiple = f" Sizes are multiples of {plan.granularity}." if plan.granularity > 1 else ""
    predicted = (
        f"Predicted (estimate): {step} a step, {rate} samples/s; the step times of the devices "
        f"differ by {plan.spread_pct:.1f}%."
    )
    found = [
        f"Global batch {plan.global_batch}: {plan.global_batch_source}.{multiple}",
        predicted,
    ]
    found += [f"{name.capitalize()}: {reason}." for name, reason in plan.unavailable.items()]
    beyond = [one for one in plan.shares if one.largest_source == "memory law" and _beyond(one)]
    found += [
        f"{one.device}: a batch of {one.batch_size} fits by the law of peak memory (estimate); "
        "none as large is known to have run there."
        for one in beyond
    ]
    joined = [one.device for one in plan.shares if one.time_source == "interpolated"]
    if joined:
        found.append(
            f"Step times of {', '.join(joined)} lie between measured sizes, without a law."
        )
    if plan.num_samples is not None and plan.num_samples % plan.global_batch:
        steps, rest = divmod(plan.num_samples, plan.global_batch)
        found.append(
            f"An epoch has {plural(steps, 'step')}; its last {rest} of "
            f"{plan.num_samples} samples are left out, others in each epoch."
        )
    found += plan.remarks
    found += [f"Left out: {name}: {reason}" for name, reason in plan.left_out.items()]
    return found


def share_row(one: SplitShare) -> tuple[str, ...]:
    """The cells of a device below `SHARES`."""
    ran = "-" if one.step_s is None else " ".join(measured(one.step_s, 1e3))
    sources = {"ran": "ran", "memory law": "estimate", "twin": f"as {one.twin_of}"}
    return (
        one.device,
        str(one.batch_size),
        _ms(one.predicted_step_s),
        ran,
        f"{one.gradient_weight:.3f}",
        f"{one.largest} ({sources[one.largest_source]})",
    )


def option_rows(plan: SplitPlan) -> list[tuple[str, ...]]:
    """The cells of every option below `OPTIONS`."""
    return [_option_row(one, plan) for one in plan.options]


def option_name(one: SplitOption) -> str:
    """`equal shares`, `cuda-0 alone`, `cuda-0 and cuda-2 only`."""
    if one.kind == "plan":
        return "as planned"
    if one.kind != "fastest only":
        return one.kind
    if len(one.devices) == 1:
        return f"{one.devices[0]} alone"
    return f"{', '.join(one.devices[:-1])} and {one.devices[-1]} only"


def _option_row(one: SplitOption, plan: SplitPlan) -> tuple[str, ...]:
    sizes = " + ".join(map(str, one.batch_sizes))
    if one.step_s is None or one.samples_per_s is None:
        reason = one.unavailable.get("step_s", "not known")
        return (option_name(one), sizes, "-", "-", reason)
    share = one.samples_per_s / plan.predicted_samples_per_s
    smaller = f" ({one.global_batch} samples fit)" if one.global_batch < plan.global_batch else ""
    return (
        option_name(one),
        sizes,
        _ms(one.step_s),
        _digits(one.samples_per_s),
        f"x{share:.2f}{smaller}",
    )


def _group(one: SplitOption) -> SplitGroup:
    bars = tuple(
        SplitBar(device=clean(name), batch_size=size, step_s=step_s)
        for name, size, step_s in zip(one.devices, one.batch_sizes, one.step_times_s, strict=True)
    )
    assert one.step_s is not None
    return SplitGroup(title=option_name(one), step_s=one.step_s, bars=bars)


def _table(title: str, header: Sequence[str], rows: Sequence[tuple[str, ...]]) -> Table:
    return Table(
        title=title,
        columns=tuple(Column(title=one, left=one in LEFT) for one in header),
        rows=tuple(Row(cells=tuple(clean(cell) for cell in row)) for row in rows),
    )


def _columns(page: Page, rows: Sequence[tuple[str, ...]]) -> None:
    """A table, or a line for each row where it is too wide."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    if 2 + sum(widths) + 2 * (len(widths) - 1) > page.width:
        header = rows[0][1:]
        for name, *cells in rows[1:]:
            known = [pair for pair in zip(header, cells, strict=True) if pair[1] != "-"]
            page.entry(", ".join(f"{title} {cell}" for title, cell in known), label=f"{name}: ")
        return
    for row in rows:
        cells = [cell.ljust(wide) for cell, wide in zip(row, widths, strict=True)]
        page.entry("  ".join(cells).rstrip())


def _beyond(one: SplitShare) -> bool:
    return one.batch_size > one.largest_ran


def _ms(seconds: float) -> str:
    return _digits(1e3 * seconds)


def _digits(value: float) -> str:
    return pad_digits(value, DIGITS)
