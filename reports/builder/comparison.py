"""The report of two runs side by side."""

from __future__ import annotations

import msgspec

from ...records import Comparison, Difference, Spread
from ...units import format_bytes, rate_name
from ..blocks import Charts, Document, Section, paragraphs
from ..chart import Chart
from ..report import Column, ComparisonReport, LongTable, Report, Row, Table
from ..words.wording import beside_value, clean, measured, pad_digits
from .charts.timelines import overlay

WORDS = {
    "samples_per_s": {"more": "faster", "less": "slower"},
    "real_tokens_per_s": {"more": "faster", "less": "slower"},
    "peak_bytes": {"more": "more", "less": "less"},
}
DRIFT = (
    "The intervals are those within each run; what changes from run to run, such as clocks and "
    "neighbours on the machine, is not in them"
)
RANKS = "ranks"
UNKNOWN = "-"
SAID = ("script", "device", "capacity")
"""Labels of differences that have a caution of their own."""
OVERLAID = ("throughput", "memory", "shares", "energy")


def build_comparison(
    comparison: Comparison,
    before: Report,
    after: Report,
    names: tuple[str, str],
    grown: tuple[LongTable, ...] = (),
) -> ComparisonReport:
    """Both reports and what `advisor.compare` found between them.

    Args:
        names: of the two runs, to tell them apart.
        grown: what changed in the profiled steps.
    """
    names = (clean(names[0]), clean(names[1]))
    return ComparisonReport(
        title=f"{names[0]} and {names[1]}",
        headline=_headline(comparison, before, after),
        names=names,
        cautions=_cautions(comparison, before, after),
        circumstances=_circumstances(comparison, before, after, names),
        table=_table(comparison, after, names),
        charts=tuple(
            chart
            for key in OVERLAID
            if (chart := _chart(key, before, after, names, comparison)) is not None
        ),
        grown=grown,
        before=before,
        after=after,
    )


def comparison_page(report: ComparisonReport) -> Document:
    """Everything that HTML and Markdown show of two runs."""
    sections = [Section(title=report.table.title, blocks=(report.table,))]
    if report.charts:
        charts = Charts(charts=report.charts, together=True)
        sections.append(Section(title="Charts", blocks=(charts,)))
    if report.grown:
        grown = tuple(
            Section(title=table.title, blocks=(table,), folded=True) for table in report.grown
        )
        sections.append(Section(title="What changed in the profiled steps", blocks=grown))
    differs = report.circumstances
    return Document(
        kind="two runs side by side",
        title=report.title,
        headline=report.headline,
        blocks=(
            *paragraphs(report.cautions, "warning"),
            *sections,
            Section(title=differs.title, blocks=(differs,)),
        ),
    )


def _headline(comparison: Comparison, before: Report, after: Report) -> str:
    difference = comparison.recommended
    if difference is None:
        lacking = [
            name
            for name, report in (("first", before), ("second", after))
            if report.advice.recommended is None
        ]
        which = f"the {' and the '.join(lacking)} run" if lacking else "one of the runs"
        return f"Cannot be compared at the recommended size: {which} recommends no timed size"
    at = f"{difference.batch_before} before, {difference.batch_after} after"
    if difference.batch_before == difference.batch_after:
        at = f"batch size {difference.batch_before} in both"
    if not comparison.same_script:
        where = "" if comparison.same_device else " on two devices"
        return f"Not comparable: two scripts{where}; a sample of one is not a sample of the other"
    if not comparison.same_device:
        start, each = "Two devices", ""
    elif (ranks := _ranks(comparison)) is not None:
        start, each = "Ranks, {} before, {} after".format(*ranks), " for each rank"
    else:
        start, each = _judged(difference).capitalize(), ""
    # A sample may have become longer: of sequences the tokens tell.
    tokens = comparison.tokens
    unit = rate_name(of_tokens=tokens is not None)
    if tokens is not None and start == _judged(difference).capitalize():
        start = _judged(tokens).capitalize()
    ratio = _ratio(difference if tokens is None else tokens)
    return f"{start}: {ratio} {unit}{each} ({at}){_like_for_like(comparison)}"


def _judged(difference: Difference) -> str:
    return WORDS[difference.quantity].get(difference.change, difference.change)


def _like_for_like(comparison: Comparison) -> str:
    """Words the change at one size in both runs; empty where they recommend the same size."""
    best, same = comparison.recommended, comparison.like_for_like
    if best is None or best.batch_before == best.batch_after:
        return ""
    if same is None:
        return "; no size was timed in both, so how much of it comes from the size is not known"
    word = f", {_judged(same)}" if comparison.same_device else ""
    return f"; like for like, {same.batch_before} in both: {_ratio(same)}{word}"


def _ranks(comparison: Comparison) -> tuple[str, str] | None:
    """How many ranks each run had, where they are not the same number."""
    pairs = (pair for label, *pair in comparison.differs if label == RANKS)
    return next(((first or "1", two or "1") for first, two in pairs), None)


def _cautions(comparison: Comparison, before: Report, after: Report) -> tuple[str, ...]:
    cautions = []
    if not comparison.same_script:
        cautions.append(
            "The two runs are of different scripts: samples per second, step times, peak memory "
            "and batch sizes are not comparable, since a sample of one may be more work than a "
            "sample of the other. What limits each step is."
        )
    if not comparison.same_device:
        cautions.append(
            "The two runs were measured on different devices: speed, memory, shares of the "
            "capacity and the recommended sizes are not comparable as an effect of a change to "
            "the script; the difference is that of the devices as much as of anything else."
        )
    others = [
        label
        for label, _, _ in comparison.differs
        if label not in (*SAID, RANKS) or (label == "script" and comparison.same_script)
    ]
    ranks = _ranks(comparison)
    if ranks is not None:
        cautions.append(
            "Samples per second, batch sizes and memory are those of one rank, of {} in the first "
            "run and of {} in the second; the whole job has that many times as much.".format(*ranks)
        )
    if others:
        cautions.append(f"Not the same in both runs: {', '.join(others)}.")
    both = [text for text in before.notices if text in after.notices]
    cautions += [f"Both runs: {text}" for text in both]
    for which, report in (("first", before), ("second", after)):
        cautions += [f"The {which} run: {text}" for text in report.notices if text not in both]
    return (*cautions, f"{DRIFT}{_moved(comparison)}.")


def _moved(comparison: Comparison) -> str:
    if comparison.moved is None:
        return ", and no size was measured twice to show it"
    return (
        f". Two readings of one size within one run were up to x{comparison.moved:.2f} apart; a "
        'smaller difference between the runs counts as "cannot tell"'
    )


def _circumstances(
    comparison: Comparison, before: Report, after: Report, names: tuple[str, str]
) -> Table:
    """What is not the same in both runs; what is, by its name alone."""
    first, second = (
        {"answer": report.headline} | {fact.label: fact.text for fact in report.circumstances}
        for report in (before, after)
    )
    labels = dict.fromkeys((*first, *second))
    rows = [(label, first.get(label, UNKNOWN), second.get(label, UNKNOWN)) for label in labels]
    same = [label for label, one, two in rows if one == two]
    rows = [row for row in rows if row[0] not in same]
    rows += [(label, clean(one), clean(two)) for label, one, two in comparison.differs]
    columns = (
        Column(title="of which", left=True),
        *(Column(title=name, left=True) for name in names),
    )
    return Table(
        title="What differs" if rows else "Nothing differs",
        columns=columns,
        rows=tuple(Row(cells=row) for row in rows),
        notes=(f"The same in both: {', '.join(same)}.",) if same else (),
    )


def _table(comparison: Comparison, after: Report, names: tuple[str, str]) -> Table:
    judged = comparison.same_script
    rates = {
        size.batch_before: size for size in comparison.sizes if size.quantity == "samples_per_s"
    }
    peaks = {size.batch_before: size for size in comparison.sizes if size.quantity == "peak_bytes"}
    tokens = {
        size.batch_before: size for size in comparison.sizes if size.quantity == "real_tokens_per_s"
    }
    recommended = after.advice.recommended
    rows: list[Row] = []
    for size in sorted(rates.keys() | peaks.keys()):
        marks = ("recommended",) if recommended and recommended.batch_size == size else ()
        cells: tuple[str, ...] = (
            str(size),
            *_cells(rates.get(size), judged),
            *_cells(peaks.get(size), judged),
        )
        if tokens:
            cells = (*cells, *_cells(tokens.get(size), judged)[:3])
        rows.append(Row(cells=cells, marks=marks))
    columns: tuple[Column, ...] = (
        Column(title="batch"),
        Column(title="samples/s", unit="before"),
        Column(title="samples/s", unit="after"),
        Column(title="ratio", unit="interval"),
        Column(title="speed", left=True),
        Column(title="peak", unit="before"),
        Column(title="peak", unit="after"),
        Column(title="ratio"),
        Column(title="memory", left=True),
    )
    if tokens:
        columns = (
            *columns,
            Column(title="real tokens/s", unit="before"),
            Column(title="real tokens/s", unit="after"),
            Column(title="ratio", unit="interval"),
        )
    notes = [f"before: {names[0]}; after: {names[1]}."]
    if not rows:
        notes.append("No size ran in both.")
    for which, sizes in (("first", comparison.only_before), ("second", comparison.only_after)):
        if sizes:
            notes.append(f"Only in the {which} run: {', '.join(map(str, sizes))}.")
    return Table(title="Size by size", columns=columns, rows=tuple(rows), notes=tuple(notes))


def _cells(difference: Difference | None, judged: bool) -> tuple[str, str, str, str]:
    """Both values; their ratio and what it says only where both are of the same work."""
    if difference is None:
        return ("-", "-", "-", "-")
    if not judged:
        return (_value(difference.before), _value(difference.after), "-", "not comparable")
    word = _judged(difference)
    if difference.quantity == "peak_bytes" and difference.change == "cannot tell":
        word = "about the same"
    return (_value(difference.before), _value(difference.after), _ratio(difference), word)


def _value(value: Spread | float | None) -> str:
    if value is None:
        return "-"
    return beside_value(*measured(value)) if isinstance(value, Spread) else format_bytes(value)


def _ratio(difference: Difference) -> str:
    """Two decimals, which tell a bound from 1; a large one in the digits its interval supports."""
    ratio, low, high = difference.ratio, difference.ratio_low, difference.ratio_high
    if ratio is None:
        return "-"
    if low is None or high is None:
        return f"x{ratio:.2f}"
    middle = f"{ratio:.2f}" if ratio < 10 else pad_digits(ratio, (high - low) / 2 / ratio)
    decimals = len(middle.partition(".")[2])
    return f"x{middle} ({low:.{decimals}f} to {high:.{decimals}f})"


def _chart(
    key: str, before: Report, after: Report, names: tuple[str, str], comparison: Comparison
) -> Chart | None:
    """Both runs' curves over each other; `None` where they are not of the same quantity."""
    charts = [
        (name, chart)
        for name, report in zip(names, (before, after), strict=True)
        for chart in report.devices[0].charts
        if chart.key == key
    ]
    if len(charts) < 2 or len({_quantity(chart) for _, chart in charts}) > 1:
        return None
    first = charts[0][1]
    title = f"{first.title}: {first.series[0].label}" if key == "shares" else ""
    chart = overlay(key, charts, title)
    if chart is not None and not comparison.same_device:
        # The limit that is drawn is that of the first run's device.
        return msgspec.structs.replace(chart, marks=())
    return chart


def _quantity(chart: Chart) -> tuple[str, str]:
    return chart.series[0].label, chart.y_label
