"""Runs side by side: what each recommends, their curves over each other."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...records import Advice, RunRecord, Spread, shared_size
from ...reports.builder.charts.sweep import sweep_charts
from ...reports.builder.charts.timelines import overlay
from ...reports.builder.sections.identity import device_name
from ...reports.builder.sizes.rows import size_rows
from ...reports.chart import Chart
from ...reports.report import Column, Row, Table
from ...reports.tab import ComparePage
from ...reports.words.wording import beside_value, clean, measured
from ...units import format_bytes, rate_name
from .records import Shown

Run = tuple[str, RunRecord, Advice]
NO_RUN = {
    "traces": "these are traces, not a run",
    "devices": "it is a run on several devices, each of which is in the list by itself",
}
"""Why an entry without a record is not compared, by its kind."""


def compare_shown(shown: Sequence[Shown]) -> ComparePage:
    """The page of what was read of some entries; what is no run is named on it."""
    runs = [
        (entry.entry.name, entry.record, entry.advice)
        for entry in shown
        if entry.record is not None and entry.advice is not None
    ]
    unread = [
        f"{entry.entry.name} is left out: {entry.problem or NO_RUN[entry.entry.kind]}"
        for entry in shown
        if entry.record is None
    ]
    return compare_page(runs, unread)


def compare_page(runs: Sequence[Run], unread: Sequence[str] = ()) -> ComparePage:
    """The page of some runs, in the order in which they were chosen."""
    return ComparePage(
        num_runs=len(runs),
        unread=tuple(unread),
        headline=_headline(runs),
        notes=_notes(runs),
        table=_table(runs),
        charts=_charts(runs),
    )


def _headline(runs: Sequence[Run]) -> str:
    """The fastest run at the recommended sizes, and like for like, if the intervals can tell."""
    if len(_scripts(runs)) > 1:
        return "Not comparable: different scripts; a sample of one is not a sample of another"
    chosen = [
        (advice.recommended, clean(name))
        for name, _, advice in runs
        if advice.recommended is not None and advice.recommended.samples_per_s is not None
    ]
    # A sample may have become longer: of sequences the tokens tell.
    of_tokens = all(choice.real_tokens_per_s is not None for choice, _ in chosen)
    speeds = [
        (rate, name, choice.batch_size)
        for choice, name in chosen
        if (rate := choice.real_tokens_per_s if of_tokens else choice.samples_per_s) is not None
    ]
    if len(speeds) < 2:
        return "Fewer than two of these runs recommend a size with a measured speed"
    speeds.sort(key=lambda speed: -speed[0].median)
    (best, name, size), (second, other, other_size) = speeds[:2]
    if not _apart(best, second):
        text = (
            f"Cannot tell whether {name} or {other} is faster at its recommended size: "
            "the intervals overlap"
        )
    else:
        factor = best.median / second.median
        text = (
            f"{name} is the fastest at its recommended size: x{factor:.2f} the "
            f"{rate_name(of_tokens=of_tokens)} of {other} ({size} against {other_size})"
        )
    return (
        text
        if len({speed[2] for speed in speeds}) == 1
        else f"{text}; {_like_for_like(runs, of_tokens)}"
    )


def _scripts(runs: Sequence[Run]) -> set[str]:
    """Different scripts, by path; one with the same text is the same wherever it was."""
    paths: dict[str, str] = {}
    scripts = [record.script for _, record, _ in runs]
    return {paths.setdefault(script.digest or script.path, script.path) for script in scripts}


def _apart(best: Spread, second: Spread) -> bool:
    return min(best.num_samples, second.num_samples) >= 3 and best.low > second.high


def _rates(
    runs: Sequence[Run], *, of_tokens: bool = False
) -> tuple[int | None, list[Spread | None]]:
    """The size at which all that timed any are compared like for like, and each run's speed."""
    rates = [
        {
            row.batch_size: rate
            for row in size_rows(record, advice)
            if (rate := row.real_tokens_per_s if of_tokens else row.samples_per_s) is not None
        }
        for _, record, advice in runs
    ]
    chosen = [advice.recommended for _, _, advice in runs]
    wanted = [choice.batch_size for choice in chosen if choice is not None]
    size = shared_size(wanted, [by_size for by_size in rates if by_size])
    return size, [None if size is None else by_size.get(size) for by_size in rates]


def _like_for_like(runs: Sequence[Run], of_tokens: bool) -> str:
    size, rates = _rates(runs, of_tokens=of_tokens)
    speeds = [(rate, clean(name)) for rate, (name, _, _) in zip(rates, runs, strict=True) if rate]
    if size is None:
        return (
            "no size was timed in all of them, so how much of it comes from the size is not known"
        )
    speeds.sort(key=lambda speed: -speed[0].median)
    (best, name), (second, other) = speeds[:2]
    start = f"like for like, {size} in all"
    if not _apart(best, second):
        return f"{start}: cannot tell"
    return f"{start}: {name} makes x{best.median / second.median:.2f} that of {other}"


def _notes(runs: Sequence[Run]) -> tuple[str, ...]:
    """Notes on differences beside the intended one."""
    kinds: dict[str, set[str]] = {
        "scripts": _scripts(runs),
        "devices": {device_name(record) for _, record, _ in runs},
        "versions of torch": {
            record.versions.torch for _, record, _ in runs if record.versions is not None
        },
        "goals": {advice.goal.kind for _, _, advice in runs},
    }
    return tuple(
        clean(f"Different {what}: {', '.join(sorted(values))}.")
        for what, values in kinds.items()
        if len(values) > 1
    )


def _table(runs: Sequence[Run]) -> Table:
    rows = []
    size, rates = _rates(runs)
    for (name, record, advice), same in zip(runs, rates, strict=True):
        choice = advice.recommended
        rate = choice.samples_per_s if choice is not None else None
        step = choice.step_s if choice is not None else None
        peak = choice.peak_bytes if choice is not None else None
        cells = (
            clean(name),
            "none" if choice is None else str(choice.batch_size),
            "-" if rate is None else beside_value(*measured(rate)),
            *(() if size is None else ("-" if same is None else beside_value(*measured(same)),)),
            "-" if step is None else beside_value(*measured(step, 1e3)),
            "-" if peak is None else format_bytes(peak),
            advice.verdict.limit if choice is not None else "-",
            advice.sureness,
            record.state,
            device_name(record),
            clean(record.script.path),
        )
        rows.append(Row(cells=cells))
    return Table(
        title="Recommended sizes",
        columns=(
            Column(title="run", left=True), Column(title="batch"),
            Column(title="samples", unit="/s"),
            *(() if size is None else (Column(title=f"at {size}", unit="/s"),)),
            Column(title="step", unit="ms"),
            Column(title="peak"), Column(title="limit", left=True),
            Column(title="sureness", left=True), Column(title="state", left=True),
            Column(title="device", left=True), Column(title="script", left=True),
        ),
        rows=tuple(rows),
        notes=("±: half the interval of the median.",),
    )  # fmt: skip


def _charts(runs: Sequence[Run]) -> tuple[Chart, ...]:
    """Each quantity that a run has, one line a run; stacked bars do not lie over each other."""
    one_device = len({device_name(record) for _, record, _ in runs}) == 1
    drawn = [
        (clean(name), sweep_charts(record, advice, size_rows(record, advice)))
        for name, record, advice in runs
    ]
    keys = dict.fromkeys(chart.key for _, charts in drawn for chart in charts if not chart.stacked)
    overlaid = []
    for key in keys:
        same = [(name, chart) for name, charts in drawn for chart in charts if chart.key == key]
        # GPU busy and the share inside a CPU's operators are no one quantity.
        same = [named for named in same if named[1].series[0].label == same[0][1].series[0].label]
        title = f"{same[0][1].title}: {same[0][1].series[0].label}" if key == "shares" else ""
        chart = overlay(key, same, title)
        if chart is not None:
            # The limit that is drawn is that of the first run's device.
            overlaid.append(chart if one_device else msgspec.structs.replace(chart, marks=()))
    return tuple(overlaid)
