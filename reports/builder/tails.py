"""The pages of the end of an epoch: the plan, the sweep, what a case means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ...records import (
    CleanSize,
    Explained,
    Fix,
    Layout,
    Pipeline,
    Proof,
    SweepRow,
    TailFinding,
    TailReport,
)
from ...units import format_count, format_runs
from ..blocks import Block, Code, Document, Facts, Grid, Paragraph, Section, paragraphs
from ..report import Column, Fact, Finding, Row, Table
from ..words.wording import clean, evidence_text, number, plural, share_of

SEVERITY_OF_HARM: dict[str, Literal["error", "warning", "info"]] = {
    "error": "error", "nan": "error", "bias": "warning", "waste": "warning", "slow": "info",
}  # fmt: skip
MAX_FIXES = 2
"""Fixes shown with each finding of a plan; `--explain` shows all."""
LONGEST = 2000
"""Characters of what is said of a case."""
NOTHING_RUN = "By arithmetic: nothing was run."
NEARBY = "Nearby, without a harmful tail"


def build_tails(report: TailReport) -> Document:
    """The plan of one pipeline."""
    pipeline, layout = report.pipeline, report.layout
    if layout is None:
        why = report.unavailable.get("layout", "the record does not say why")
        known: Block = Paragraph(text=clean(f"The last step is not known: {why}."))
    else:
        known = _facts(_rows(pipeline, layout))
    sections = [_findings(report.findings)]
    if report.nearest_clean:
        pairs = [
            (format_count(clean_size.batch_size), _clean(clean_size, pipeline))
            for clean_size in report.nearest_clean
        ]
        sections.append(Section(title=NEARBY, blocks=(_facts(pairs),)))
    elif "nearest_clean" in report.unavailable:
        reason = clean(f"{report.unavailable['nearest_clean']}.")
        sections.append(Section(title=NEARBY, blocks=(Paragraph(text=reason),)))
    return Document(
        title="the end of an epoch",
        headline=clean(_description(pipeline)),
        blocks=(known, *sections, _ending(NOTHING_RUN)),
    )


def _facts(pairs: Sequence[tuple[str, str]]) -> Facts:
    return Facts(facts=tuple(Fact(label=clean(label), text=clean(text)) for label, text in pairs))


def _ending(text: str) -> Section:
    return Section(blocks=paragraphs([text], "dim"))


def _description(pipeline: Pipeline) -> str:
    samples = (
        "an unknown number of samples"
        if pipeline.num_samples is None
        else plural(pipeline.num_samples, "sample")
    )
    ranks = f" on {pipeline.num_ranks} ranks" if pipeline.num_ranks > 1 else ""
    drop = ", iterable" if pipeline.iterable else ""
    if pipeline.iterable and pipeline.num_workers:
        drop += f", {plural(pipeline.num_workers, 'worker')}"
    drop += ", drop_last=True" if pipeline.drop_last else ""
    stage = "" if pipeline.stage == "train" else f", to {pipeline.stage}"
    size = (
        f"batches of {format_runs(pipeline.rank_batch_sizes)} by rank"
        if pipeline.rank_batch_sizes
        else f"batch size {format_count(pipeline.batch_size)}"
    )
    return f"{samples}, {size}{ranks}, {pipeline.setup}{drop}{stage}"


def _rows(pipeline: Pipeline, layout: Layout) -> list[tuple[str, str]]:
    rows = [("steps per epoch", _steps(pipeline, layout))]
    if layout.steps:
        rows.append(("a full step", _sizes(layout.full, layout.full_samples)))
        rows.append(("the last step", _last(layout, pipeline)))
    if layout.accumulation_tail:
        rows.append(
            (
                "last accumulation",
                f"{layout.accumulation_tail} of {pipeline.micro_batches} micro-batches",
            )
        )
    samples = pipeline.num_samples or 0
    for label, count in (("repeated", layout.duplicates), ("left out", layout.dropped)):
        if count:
            rows.append((label, f"{plural(count, 'sample')} ({share_of(count, samples)}%)"))
    return rows


def _steps(pipeline: Pipeline, layout: Layout) -> str:
    text = format_count(layout.steps)
    if len(set(layout.batches)) > 1:
        text += f", by rank {format_runs(layout.batches)}"
    if pipeline.micro_batches > 1:
        batches = plural(max(layout.batches), "micro-batch", "micro-batches")
        text += f" optimizer steps of {batches}"
    return text


def _sizes(sizes: tuple[int, ...], whole: int) -> str:
    if len(sizes) < 2:
        return plural(whole, "sample")
    return f"{plural(whole, 'sample')}: {format_runs(sizes)} by rank"


def _last(layout: Layout, pipeline: Pipeline) -> str:
    if not layout.is_short:
        return "full" if layout.last == layout.full else _sizes(layout.last, layout.last_samples)
    placed = _sizes(layout.last, layout.last_samples)
    if not layout.last:
        placed = plural(layout.last_samples, "sample")
    if max(layout.batches) == 1:
        return f"{placed}; it is the only one of an epoch"
    if pipeline.stage == "predict" or max(layout.batches) == len(layout.short):
        return placed
    weight = number(float(f"{layout.weight:.3g}"))
    return f"{placed}; each weighs {weight} times the others under a mean loss"


def _findings(findings: Sequence[TailFinding]) -> Section:
    if not findings:
        return Section(title="Findings", blocks=paragraphs(["Nothing to say against it."]))
    blocks: list[Finding] = []
    shown: set[str] = set()
    for finding in findings:
        new = [fix for fix in finding.fixes[:MAX_FIXES] if fix.snippet not in shown]
        blocks.append(_finding(finding, new))
        if finding.harmful:
            shown |= {fix.snippet for fix in new}
    return Section(title="Findings", blocks=tuple(blocks))


def _finding(finding: TailFinding, fixes: Sequence[Fix]) -> Finding:
    """A case that is met.

    Args:
        fixes: those that were not shown before.
    """
    said = evidence_text(finding.evidence, finding.message)
    word = finding.severity if finding.harmful else "note"
    remedy = ""
    code: list[str] = []
    if finding.harmful:
        remedy = "as above" if finding.fixes else "none of the remedies of its page helps here"
        for fix in fixes:
            code += [f"# or {fix.title}"] if code else []
            code += fix.snippet.splitlines()
        remedy = fixes[0].title if fixes else remedy
    return Finding(
        severity=SEVERITY_OF_HARM[finding.severity] if finding.harmful else "info",
        message=clean(finding.message),
        evidence=clean(f"{finding.id} ({word}){'; ' + said if said else ''}"),
        remedy=clean(remedy),
        code=tuple(map(clean, code)),
    )


def _fix(fix: Fix) -> tuple[Block, ...]:
    return Paragraph(text=clean(f"→ {fix.title}")), Code(text=fix.snippet)


def _clean(size: CleanSize, pipeline: Pipeline) -> str:
    if not size.last_samples:
        return "no short batch"
    if pipeline.stage == "predict":
        return f"the last step has {plural(size.last_samples, 'sample')}"
    weight = number(float(f"{size.weight:.3g}"))
    return f"the last step has {plural(size.last_samples, 'sample')}, each weighs {weight} times"


def build_sweep(pipeline: Pipeline, rows: Sequence[SweepRow], *, every: bool) -> Document:
    """A table of sizes.

    Args:
        every: else sizes that meet a harmful case are left out where clean ones exist.
    """
    own = f"batch size {format_count(pipeline.batch_size)}"
    good = [row for row in rows if row.steps and not row.ids]
    shown = list(rows) if every or not good else good
    columns = {
        "batch": [format_count(row.batch_size) for row in shown],
        "steps": [format_count(row.steps) for row in shown],
        "last step": [_last_step(row) for row in shown],
        "weight": [f"{row.weight:.3g}" if row.last else "" for row in shown],
        "repeated": [format_count(row.duplicates) if row.duplicates else "" for row in shown],
        "left out": [format_count(row.dropped) if row.dropped else "" for row in shown],
        "cases": [
            ", ".join(row.ids) or ("clean" if row.steps else "not possible") for row in shown
        ],
    }
    used = {title: cells for title, cells in columns.items() if any(cells)}
    note = f"{len(good)} of {plural(len(rows), 'size')} without a harmful tail"
    if len(shown) < len(rows):
        note += "; --all shows the others too"
    table = Table(
        title="Sizes",
        columns=tuple(Column(title=title, left=title == "cases") for title in used),
        rows=tuple(
            Row(cells=tuple(map(clean, cells))) for cells in zip(*used.values(), strict=True)
        ),
    )
    return Document(
        title="the end of an epoch by batch size",
        headline=clean(_description(pipeline).replace(own, "by batch size")),
        blocks=(Section(blocks=(table,)), _ending(f"{note}. {NOTHING_RUN}")),
    )


def _last_step(row: SweepRow) -> str:
    if row.last:
        return format_runs(row.last)
    return "full" if row.steps else "none"


def build_case(explained: Explained, *, num_cases: int) -> Document:
    """The page of one case."""
    case = explained.case
    advice: list[Block] = [Paragraph(text=clean(case.advice, limit=LONGEST))]
    if explained.fixes:
        example = f"For example with {_description(explained.example)}:"
        advice.append(Paragraph(text=clean(example)))
    for fix in explained.fixes:
        advice += _fix(fix)
    known = [
        Paragraph(
            label=proof.how,
            text=clean(f"{proof.what}{_versions(proof)}"),
        )
        for proof in explained.proofs
    ]
    return Document(
        title=case.id,
        headline=f"{case.id}  ({case.number} of {num_cases}, {case.severity})",
        blocks=(
            Paragraph(text=clean(case.title)),
            Section(
                title="What happens", blocks=(Paragraph(text=clean(case.what, limit=LONGEST)),)
            ),
            Section(title="What to do", blocks=tuple(advice)),
            Section(
                title="How it is known",
                blocks=tuple(known) or paragraphs(["no test has provoked it yet"]),
            ),
        ),
    )


def _versions(proof: Proof) -> str:
    listed = ", ".join(f"{name} {version}" for name, version in proof.versions.items())
    return f" ({listed})" if listed else ""


def build_catalogue(pages: Sequence[Explained]) -> Document:
    """All cases, one a line: number, id, severity, how it is known, title."""
    table = Table(
        title="Cases",
        columns=(
            Column(title="no."),
            *(Column(title=title, left=True) for title in ("id", "severity", "known", "what")),
        ),
        rows=tuple(
            Row(
                cells=(
                    str(explained.case.number),
                    explained.case.id,
                    explained.case.severity,
                    " + ".join(dict.fromkeys(proof.how for proof in explained.proofs)) or "no test",
                    clean(explained.case.title),
                )
            )
            for explained in pages
        ),
    )
    return Document(
        title="cases of the last batch",
        headline=f"{len(pages)} things that a short or uneven last batch can do",
        blocks=(Section(blocks=(Grid(table=table, dropped_first=("known",)),)),),
    )
