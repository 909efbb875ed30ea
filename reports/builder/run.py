"""Makes the report object from a record and its advice. Words and numbers only, no layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ...records import Advice, LoaderInfo, Profile, RunRecord
from ...units import rate_name
from ..chart import BATCH, Chart
from ..report import (
    DeviceSection,
    Fact,
    Finding,
    LimitText,
    LongTable,
    Report,
    Size,
    Table,
    TailSection,
    TraceFile,
)
from ..sizes import SizeRow
from ..words.outcomes import spoken
from ..words.wording import change_text, clean, evidence_text
from . import growth, observed
from .charts.breakdown import breakdown
from .charts.sweep import sweep_charts
from .charts.timelines import overlay, timelines
from .hot import hot_row, hot_tables, window_of
from .ranks import rank_charts, rank_table
from .sections.circumstances import circumstances, sureness
from .sections.distribution import distribution_rows
from .sections.estimates import estimate_rows
from .sections.flops import flop_facts, flop_reasons
from .sections.identity import device_name, identity
from .sections.limit import evidence_table, limit_text
from .sections.memory import memory_sections
from .sections.profiled_memory import profiled_section
from .sections.tail import rank_blocks, tail_texts
from .sections.tokens import token_facts, token_reasons
from .sections.training import training_rows
from .sizes.columns import plain_table, sizes_table
from .sizes.rows import size_rows

LONGEST = 1500
"""Letters of what is said of all sizes or causes together."""
MOST_OF_SEVERAL = 8
"""Kernels and operators of each device that are listed where a run has several."""
UNFINISHED = {
    "running": "This run has not finished: the record was read while it was being written, or the "
    "run was killed.",
    "interrupted": "This run was interrupted; what was measured until then is shown.",
    "failed": "This run failed; what was measured until then is shown.",
}


WATCHED = (
    "A callback watched a training that went its own way: only the sizes that it used itself were "
    "measured, and none was tried."
)


def build_report(
    record: RunRecord,
    advice: Advice,
    *,
    samples: Sequence[Mapping[str, Any]] = (),
    devices: Sequence[tuple[str, RunRecord, Advice, Sequence[Mapping[str, Any]]]] = (),
    tables: Sequence[Table] = (),
) -> Report:
    """The report of a run.

    Args:
        samples: rows of the run's `samples.jsonl`; the NVML timeline comes from them.
        devices: for a run on several devices a name, the record of that device, its advice and
            its samples, in order; the record itself is the only device otherwise.
        tables: further tables that are shown after the sizes.
    """
    shown = advice if record.observed is None else _without_choice(advice)
    parts = [
        _device(name, its_record, its_advice, its_samples, len(devices))
        for name, its_record, its_advice, its_samples in devices
    ] or [_device(device_name(record), record, shown, samples)]
    script = record.script.path
    ranks = rank_table(record, advice)
    return Report(
        title=clean(f"batch size of {script}"),
        state=record.state,
        notices=_notices(record),
        headline=clean(advice.headline),
        reason=clean(advice.reason, limit=LONGEST),
        sureness=sureness(record, advice) if advice.recommended is not None else "",
        change=clean(change_text(advice)),
        circumstances=_facts(
            [
                *circumstances(record, advice.goal),
                *token_facts(
                    size_rows(record, advice), _loader(record), by_tokens=advice.by_tokens
                ),
                *flop_facts(size_rows(record, advice)),
            ]
        ),
        devices=tuple(parts),
        overview=(*rank_charts(record, advice), *(_overview(parts) if len(parts) > 1 else ())),
        tables=(*((ranks,) if ranks is not None else ()), *tables),
        watched=_facts(pair for pair in observed.rows(record, advice) if pair[1])
        if record.observed is not None
        else (),
        distribution=_facts(distribution_rows(record, advice)),
        training=_training(advice),
        limit=_limit(advice),
        tail=_tail(advice),
        findings=tuple(
            Finding(
                severity=finding.severity,
                message=clean(finding.message, limit=LONGEST),
                evidence=clean(evidence_text(finding.evidence, finding.message)),
                numbers=evidence_table(finding.evidence, finding.message),
                remedy=clean(finding.remedy, limit=LONGEST),
                code=tuple(map(clean, finding.code)),
                estimate=finding.confidence == "estimate",
            )
            for finding in advice.findings
        ),
        faults=_facts(
            (spoken(fault.outcome), fault.detail + (f" (log: {fault.log})" if fault.log else ""))
            for fault in record.faults
        ),
        estimates=_facts(estimate_rows(record, advice)),
        files=_facts(
            (file.action, f"{file.path} (or another program did)" if file.listed else file.path)
            for file in record.files
        ),
        identity=_facts(identity(record)),
        memory=(
            *memory_sections(record, advice.recommended),
            *profiled_section(hot_row(size_rows(record, shown), shown), record),
        ),
        advice=advice,
    )


def _loader(record: RunRecord) -> LoaderInfo | None:
    return None if record.discovery is None else record.discovery.primary


def _without_choice(advice: Advice) -> Advice:
    """The advice on a watched training: its size was seen, not chosen among others."""
    return msgspec.structs.replace(advice, recommended=None, fastest=None, largest=None)


def _facts(pairs: Any) -> tuple[Fact, ...]:
    return tuple(Fact(label=clean(label).strip(), text=clean(text)) for label, text in pairs)


def _notices(record: RunRecord) -> tuple[str, ...]:
    notices = []
    if record.state in UNFINISHED:
        notices.append(UNFINISHED[record.state])
    if record.observed is not None:
        notices.append(WATCHED)
    if record.device is not None and record.device.kind == "cpu":
        notices.append("Measured on a CPU. A batch size found on a CPU is no answer for a GPU.")
    return tuple(notices)


def _device(
    name: str,
    record: RunRecord,
    advice: Advice,
    samples: Sequence[Mapping[str, Any]],
    num_devices: int = 1,
) -> DeviceSection:
    rows = size_rows(record, advice)
    hot = hot_row(rows, advice)
    # The page of many devices stays small.
    most = None if num_devices <= 1 else MOST_OF_SEVERAL
    tables: tuple[LongTable | None, ...] = ()
    if hot is not None and hot.profile is not None:
        where = f" at batch size {hot.batch_size}"
        tables = hot_tables(hot.profile, window_of(hot), where, most)
    first, second = (*tables, None, None)[:2]
    return DeviceSection(
        name=clean(name),
        headline=clean(advice.headline),
        sizes=tuple(_size(row, record) for row in rows),
        table=plain_table(sizes_table(record, rows), rows),
        charts=tuple(_on_axis(chart, record) for chart in sweep_charts(record, advice, rows)),
        timelines=timelines(
            samples, num_devices, {trial.ordinal: trial.batch_size for trial in record.trials}
        ),
        hot=first,
        hot_size=None if hot is None else hot.batch_size,
        operators=second if most is None else None,
        grown=growth.of_sizes(rows, advice) if most is None else (),
        trace=_trace(hot) if most is None else None,
    )


def _trace(row: SizeRow | None) -> TraceFile | None:
    if row is None or row.profile is None or row.profile.trace is None:
        return None
    return TraceFile(path=row.profile.trace, batch_size=row.batch_size, stacks=row.profile.stacks)


def _on_axis(chart: Chart, record: RunRecord) -> Chart:
    """A chart over sizes that may count something else than samples."""
    loader = _loader(record)
    if loader is None or loader.axis == "samples" or chart.x_label != BATCH:
        return chart
    return msgspec.structs.replace(chart, x_label=loader.size_name)


def _size(row: SizeRow, record: RunRecord) -> Size:
    profile = row.profile or Profile()
    capacity = record.device.capacity_bytes if record.device is not None else 0
    used = None
    if row.peak_bytes is not None and capacity > 0:
        used = 100 * row.peak_bytes / capacity
    return Size(
        batch_size=row.batch_size,
        outcome=row.trial.outcome,
        detail=clean(row.trial.detail),
        kind="fit" if row.trial.kind == "fit" else "timed",
        marks=row.marks,
        step_s=row.step_s,
        samples_per_s=row.samples_per_s,
        real_tokens_per_s=row.real_tokens_per_s,
        positions_per_s=row.positions_per_s,
        padding_pct=row.padding_pct,
        token_evidence="" if row.tokens is None else row.tokens.evidence,
        flops_per_step=None if row.flops is None else row.flops.per_step,
        tflops_per_s=row.tflops_per_s,
        mfu_pct=row.mfu_pct,
        peak_bytes=row.peak_bytes,
        predicted_bytes=row.predicted_bytes,
        used_pct=used,
        busy_pct=profile.busy_pct,
        sm_efficiency_pct=profile.sm_efficiency_pct,
        occupancy_pct=profile.occupancy_pct,
        tensor_core_pct=profile.tensor_core_pct,
        operators_pct=profile.operators_pct,
        input_pct=row.input_pct,
        power_w=row.watts,
        samples_per_joule=row.samples_per_joule,
        breakdown_pct=breakdown(row) or {},
        unavailable={
            key: clean(text)
            for key, text in {
                **row.unavailable,
                **token_reasons(row.tokens),
                **flop_reasons(row),
            }.items()
        },
    )


def _overview(parts: Sequence[DeviceSection]) -> tuple[Any, ...]:
    """One chart for all devices, for each quantity that one of them has."""
    keys = dict.fromkeys(chart.key for part in parts for chart in part.charts)
    overlaid = []
    for key in keys:
        if key == "step_time":
            continue  # stacked bars do not lie over each other
        charts = [(part.name, chart) for part in parts for chart in part.charts if chart.key == key]
        title = f"{charts[0][1].title}: {charts[0][1].series[0].label}" if key == "shares" else ""
        overlaid.append(overlay(f"all_{key}", charts, title))
    return tuple(chart for chart in overlaid if chart is not None)


def _training(advice: Advice) -> tuple[Fact, ...]:
    if advice.training is not None:
        return _facts(training_rows(advice, advice.training))
    reason = advice.unavailable.get("training")
    return _facts([("not known", reason)]) if reason and advice.recommended is not None else ()


def _limit(advice: Advice) -> LimitText | None:
    if advice.recommended is None:
        return None
    verdict = advice.verdict
    told = verdict.larger_batch != "unknown" or verdict.gain_at_most is not None
    of_tokens = advice.recommended.real_tokens_per_s is not None
    text = limit_text(verdict, rate_name(of_tokens=of_tokens))
    contributions = _facts(
        (share.metric, share.value if isinstance(share.value, str) else f"{100 * share.value:.1f}%")
        for share in verdict.contributions
    )
    larger = text.larger if told else ""
    return msgspec.structs.replace(text, larger=larger, contributions=contributions)


def _tail(advice: Advice) -> TailSection | None:
    if advice.recommended is None:
        return None
    texts = tail_texts(advice)
    tail = advice.tail
    return TailSection(
        texts=tuple(clean(text) for text, _ in texts),
        bad=any(bad for _, bad in texts),
        batch_size=tail.batch_size if tail is not None else 0,
        ranks=() if tail is None else rank_blocks(tail),
    )
