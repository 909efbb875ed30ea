"""The end of an epoch as terminal text: the plan, the sweep, the pages that explain."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from ..records import CleanSize, Explained, Fix, Layout, Pipeline, SweepRow, TailFinding, TailReport
from ..units import format_count, format_runs
from .layout import Page
from .sections import SEVERITY_STYLES
from .wording import evidence_text, number, plural, share_of

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
        page.pairs([(format_count(one.batch_size), _clean(one)) for one in report.nearest_clean])
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
        rows.append(("the last step", _last(layout)))
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


def _last(layout: Layout) -> str:
    if not layout.is_short:
        return "full" if layout.last == layout.full else _sizes(layout.last, layout.last_samples)
    placed = _sizes(layout.last, layout.last_samples)
    if not layout.last:
        placed = plural(layout.last_samples, "sample")
    if max(layout.batches) == 1:
        return f"{placed}; it is the only one of an epoch"
    weight = number(float(f"{layout.weight:.3g}"))
    return f"{placed}; each weighs {weight} times the others under a mean loss"


def _findings(page: Page, findings: Sequence[TailFinding]) -> None:
    if not findings:
        page.heading("Nothing to say against it")
        return
    page.heading("Findings")
    shown: set[str] = set()
    for one in findings:
        style = _STYLES[one.severity] if one.harmful else "dim"
        label = (one.severity if one.harmful else "note").ljust(7)
        page.entry(one.message, label=label, label_style=style)
        inner = 4 if page.narrow else 9
        said = evidence_text(one.evidence, one.message)
        page.entry(f"{one.id}{'; ' + said if said else ''}", style="dim", indent=inner)
        new = [fix for fix in one.fixes[:MAX_FIXES] if fix.snippet not in shown]
        for fix in new if one.harmful else ():
            _fix(page, fix, inner)
            shown.add(fix.snippet)
        if one.harmful and one.fixes and not new:
            page.entry("as above", label="→ ", indent=inner)
        if one.harmful and not one.fixes:
            page.entry("none of the remedies of its page helps here", label="→ ", indent=inner)


def _fix(page: Page, fix: Fix, indent: int) -> None:
    page.entry(fix.title, label="→ ", indent=indent)
    for line in fix.snippet.splitlines():
        page.whole(line, indent=indent + 4)


def _clean(one: CleanSize) -> str:
    if not one.last_samples:
        return "no short batch"
    weight = number(float(f"{one.weight:.3g}"))
    return f"the last step has {plural(one.last_samples, 'sample')}, each weighs {weight} times"


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
    clean = [one for one in rows if one.steps and not one.ids]
    shown = list(rows) if every or not clean else clean
    table = [("batch", "steps", "last step", "weight", "repeated", "left out", "cases")]
    table += [
        (
            format_count(one.batch_size),
            format_count(one.steps),
            format_runs(one.last) if one.last else "full" if one.steps else "none",
            f"{one.weight:.3g}" if one.last else "",
            format_count(one.duplicates) if one.duplicates else "",
            format_count(one.dropped) if one.dropped else "",
            ", ".join(one.ids) or ("clean" if one.steps else "not possible"),
        )
        for one in shown
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


def render_case(found: Explained, *, num_cases: int, width: int, encoding: str = "utf-8") -> str:
    """The page of one case."""
    page = Page(width, encoding)
    case = found.case
    page.entry(
        f"{case.id}  ({case.number} of {num_cases}, {case.severity})", style="bold", indent=0
    )
    page.entry(case.title, indent=0)
    page.heading("What happens")
    page.entry(case.what)
    page.heading("What to do")
    page.entry(case.advice)
    if found.fixes:
        page.entry(f"For example with {_description(found.example)}:")
    for fix in found.fixes:
        _fix(page, fix, 2)
    page.heading("How it is known")
    for one in found.proofs:
        versions = ", ".join(f"{name} {version}" for name, version in one.versions.items())
        page.entry(f"{one.what}{' (' + versions + ')' if versions else ''}", label=f"{one.how}: ")
    if not found.proofs:
        page.entry("no test has provoked it yet")
    return page.render(color=False).rstrip("\n")


def render_catalogue(pages: Sequence[Explained], *, width: int, encoding: str = "utf-8") -> str:
    """All cases, one a line: number, id, severity, how it is known, title."""
    page = Page(width, encoding)
    table = [("", "id", "severity", "known", "what")]
    table += [
        (
            str(one.case.number),
            one.case.id,
            one.case.severity,
            " + ".join(dict.fromkeys(proof.how for proof in one.proofs)) or "no test",
            one.case.title,
        )
        for one in pages
    ]
    widths = [max(len(row[column]) for row in table) for column in range(4)]
    for position, row in enumerate(table):
        cells = [row[0].rjust(widths[0])]
        cells += [row[column].ljust(widths[column]) for column in range(1, 4)]
        page.line(Text(page.safe(GAP.join([*cells, row[4]])), style="" if position else "bold"))
    page.blank()
    page.whole("batchadvisor tails --explain ID", label="Next: ", label_style="bold", indent=0)
    return page.render(color=False).rstrip("\n")
