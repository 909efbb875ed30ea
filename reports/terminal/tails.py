"""The end of an epoch as terminal text: the plan, the sweep, the pages that explain."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from ...records import (
    CleanSize,
    Explained,
    Fix,
    Layout,
    Pipeline,
    SweepRow,
    TailFinding,
    TailReport,
)
from ...units import format_count, format_runs
from ..words.wording import evidence_text, number, plural, share_of
from .page import Page
from .sections import SEVERITY_STYLES

_STYLES = {
    "error": SEVERITY_STYLES["error"],
    "nan": SEVERITY_STYLES["error"],
    "bias": SEVERITY_STYLES["warning"],
    "waste": SEVERITY_STYLES["warning"],
    "slow": SEVERITY_STYLES["info"],
}
MAX_FIXES = 2
"""Fixes shown with each finding of a plan; `--explain` shows all."""
GAP = "  "


def render(report: TailReport, *, next_command: str, width: int, encoding: str = "utf-8") -> str:
    """The plan of one pipeline."""
    page = Page(width, encoding)
    pipeline, layout = report.pipeline, report.layout
    page.entry(_description(pipeline), style="bold", indent=0)
    if layout is None:
        why = report.unavailable.get("layout", "the record does not say why")
        page.entry(f"The last step is not known: {why}.")
    else:
        page.pairs(_rows(pipeline, layout))
    _findings(page, report.findings)
    if report.nearest_clean:
        page.heading("Nearby, without a harmful tail")
        page.pairs(
            [
                (format_count(clean.batch_size), _clean(clean, pipeline))
                for clean in report.nearest_clean
            ]
        )
    elif "nearest_clean" in report.unavailable:
        page.heading("Nearby, without a harmful tail")
        page.entry(f"{report.unavailable['nearest_clean']}.")
    page.blank()
    page.entry("By arithmetic: nothing was run.", style="dim", indent=0)
    if next_command:
        page.whole(next_command, label="Next: ", label_style="bold", indent=0)
    return page.render(color=False).rstrip("\n")


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
    if pipeline.stage == "predict":
        return placed
    weight = number(float(f"{layout.weight:.3g}"))
    return f"{placed}; each weighs {weight} times the others under a mean loss"


def _findings(page: Page, findings: Sequence[TailFinding]) -> None:
    if not findings:
        page.heading("Nothing to say against it")
        return
    page.heading("Findings")
    shown: set[str] = set()
    for finding in findings:
        style = _STYLES[finding.severity] if finding.harmful else "dim"
        label = (finding.severity if finding.harmful else "note").ljust(7)
        page.entry(finding.message, label=label, label_style=style)
        inner = 4 if page.narrow else 9
        said = evidence_text(finding.evidence, finding.message)
        page.entry(f"{finding.id}{'; ' + said if said else ''}", style="dim", indent=inner)
        new = [fix for fix in finding.fixes[:MAX_FIXES] if fix.snippet not in shown]
        for fix in new if finding.harmful else ():
            _fix(page, fix, inner)
            shown.add(fix.snippet)
        if finding.harmful and finding.fixes and not new:
            page.entry("as above", label="→ ", indent=inner)
        if finding.harmful and not finding.fixes:
            page.entry("none of the remedies of its page helps here", label="→ ", indent=inner)


def _fix(page: Page, fix: Fix, indent: int) -> None:
    page.entry(fix.title, label="→ ", indent=indent)
    for line in fix.snippet.splitlines():
        page.whole(line, indent=indent + 4)


def _clean(clean: CleanSize, pipeline: Pipeline) -> str:
    if not clean.last_samples:
        return "no short batch"
    if pipeline.stage == "predict":
        return f"the last step has {plural(clean.last_samples, 'sample')}"
    weight = number(float(f"{clean.weight:.3g}"))
    return f"the last step has {plural(clean.last_samples, 'sample')}, each weighs {weight} times"


def render_sweep(
    pipeline: Pipeline,
    rows: Sequence[SweepRow],
    *,
    every: bool,
    width: int,
    encoding: str = "utf-8",
) -> str:
    """A table of sizes.

    Args:
        every: else sizes that meet a harmful case are left out where clean ones exist.
    """
    page = Page(width, encoding)
    page.entry(
        _description(pipeline).replace(
            f"batch size {format_count(pipeline.batch_size)}", "by batch size"
        ),
        style="bold",
        indent=0,
    )
    clean = [row for row in rows if row.steps and not row.ids]
    shown = list(rows) if every or not clean else clean
    table = [("batch", "steps", "last step", "weight", "repeated", "left out", "cases")]
    table += [
        (
            format_count(row.batch_size),
            format_count(row.steps),
            format_runs(row.last) if row.last else "full" if row.steps else "none",
            f"{row.weight:.3g}" if row.last else "",
            format_count(row.duplicates) if row.duplicates else "",
            format_count(row.dropped) if row.dropped else "",
            ", ".join(row.ids) or ("clean" if row.steps else "not possible"),
        )
        for row in shown
    ]
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    used = [column for column in range(len(widths)) if any(row[column] for row in table[1:])]
    for position, row in enumerate(table):
        cells = [
            row[column].rjust(widths[column]) if column < 6 else row[column] for column in used
        ]
        text = page.safe("  " + GAP.join(cells).rstrip())
        page.line(Text(text, style="bold" if position == 0 else ""))
    page.blank()
    left_out = len(rows) - len(shown)
    note = f"{len(clean)} of {plural(len(rows), 'size')} without a harmful tail"
    if left_out:
        note += "; --all shows the others too"
    page.entry(f"{note}. By arithmetic: nothing was run.", style="dim", indent=0)
    return page.render(color=False).rstrip("\n")


def render_case(
    explained: Explained, *, num_cases: int, width: int, encoding: str = "utf-8"
) -> str:
    """The page of one case."""
    page = Page(width, encoding)
    case = explained.case
    page.entry(
        f"{case.id}  ({case.number} of {num_cases}, {case.severity})", style="bold", indent=0
    )
    page.entry(case.title, indent=0)
    page.heading("What happens")
    page.entry(case.what)
    page.heading("What to do")
    page.entry(case.advice)
    if explained.fixes:
        page.entry(f"For example with {_description(explained.example)}:")
    for fix in explained.fixes:
        _fix(page, fix, 2)
    page.heading("How it is known")
    for proof in explained.proofs:
        versions = ", ".join(f"{name} {version}" for name, version in proof.versions.items())
        page.entry(
            f"{proof.what}{' (' + versions + ')' if versions else ''}", label=f"{proof.how}: "
        )
    if not explained.proofs:
        page.entry("no test has provoked it yet")
    return page.render(color=False).rstrip("\n")


def render_catalogue(pages: Sequence[Explained], *, width: int, encoding: str = "utf-8") -> str:
    """All cases, one a line: number, id, severity, how it is known, title."""
    page = Page(width, encoding)
    table = [("", "id", "severity", "known", "what")]
    table += [
        (
            str(explained.case.number),
            explained.case.id,
            explained.case.severity,
            " + ".join(dict.fromkeys(proof.how for proof in explained.proofs)) or "no test",
            explained.case.title,
        )
        for explained in pages
    ]
    widths = [max(len(row[column]) for row in table) for column in range(4)]
    for position, row in enumerate(table):
        cells = [row[0].rjust(widths[0])]
        cells += [row[column].ljust(widths[column]) for column in range(1, 4)]
        page.line(Text(page.safe(GAP.join([*cells, row[4]])), style="" if position else "bold"))
    page.blank()
    page.whole("batchadvisor tails --explain ID", label="Next: ", label_style="bold", indent=0)
    return page.render(color=False).rstrip("\n")
