"""The sections of the terminal report that explain the answer. Each appends to a page."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from ...records import FileTouched
from ..blocks import Grid
from ..report import Fact, Finding, LimitText, Report, Table
from ..text import MemoryLines, TextReport
from ..words.compared import not_compared
from .page import Page
from .tables import add_grid

MAX_FILES = 10
LISTED = "By the script's databases or child processes, or by another program."
SEVERITY_STYLES = {"error": "bold red", "warning": "yellow", "info": "cyan"}


def pairs_of(facts: Sequence[Fact]) -> list[tuple[str, str]]:
    """Facts as a page takes them: label and text."""
    return [(fact.label, fact.text) for fact in facts]


def add_training(page: Page, text: TextReport) -> None:
    """What the recommended size does to the training."""
    report = text.report
    if not text.training_unknown and not report.training:
        return
    page.heading("What it does to the training")
    if text.training_unknown:
        page.entry(text.training_unknown)
        return
    page.pairs(pairs_of(report.training))
    page.entry(not_compared(report.advice))


def add_limit(page: Page, limit: LimitText, *, indent: int = 2) -> None:
    """What limits the step, on what it rests, and what helps."""
    style = "bold red" if limit.limit == "cannot tell" else "bold"
    page.entry(limit.message, label=f"{limit.limit}: ", label_style=style, indent=indent)
    _add_evidence(page, limit.evidence, limit.numbers, indent + 2)
    if limit.larger:
        page.entry(limit.larger, indent=indent + 2)
    if limit.remedy:
        page.entry(limit.remedy, label="→ ", indent=indent + 2)


def _add_evidence(page: Page, sentence: str, numbers: Table | None, indent: int) -> None:
    """Several numbers under each other, one in a sentence."""
    rows = [] if numbers is None else [row.cells for row in numbers.rows]
    width = max((len(value) for _, value, _ in rows), default=0)
    pairs = [
        (name, value.rjust(width) + ("" if limit == "-" else f"  threshold {limit}"))
        for name, value, limit in rows
    ]
    room = page.width - indent - 2 - max((len(name) for name, _ in pairs), default=0)
    if pairs and all(len(value) <= room for _, value in pairs):
        page.pairs(pairs, indent=indent)
    elif sentence:
        page.entry(sentence, style="dim", indent=indent)


def add_memory(page: Page, memory: MemoryLines | None) -> None:
    """Where the memory goes, in few lines; nothing where nobody looked."""
    if memory is None:
        return
    page.heading("Where the memory goes")
    if memory.unknown:
        page.entry(memory.unknown, style="dim")
        return
    page.entry(memory.categories)
    page.pairs(pairs_of(memory.lines))


def add_ranks(page: Page, text: TextReport) -> None:
    """Ranks, Tcomp and Tsync, and the epoch on more devices; nothing for a single rank."""
    if not text.ranks:
        return
    page.heading("Several ranks")
    page.pairs(pairs_of(text.ranks))
    if text.epochs is None:
        return
    if text.epochs_unknown:
        page.entry(text.epochs_unknown)
    page.entry("devices  epoch              speed-up")
    for row in text.epochs:
        devices, epoch, speed, basis = row.cells
        page.entry(f"{devices:>7}  {epoch:<17}  {speed:<14}  {basis}")


def add_tail(page: Page, text: TextReport) -> None:
    """What the last batch of the epoch will be, and what a step of that length did."""
    tail = text.report.tail
    if tail is None:
        return
    page.heading("Last batch of the epoch")
    for sentence, bad in zip(tail.texts, text.tail_bad, strict=True):
        page.entry(sentence, style="red" if bad else "")


def add_tables(page: Page, tables: Sequence[Table]) -> None:
    """Tables with their notes."""
    for table in tables:
        page.heading(table.title)
        add_grid(page, Grid(table=table))


def add_findings(page: Page, report: Report) -> None:
    """What else the user should know, worst first, and failures outside the trials."""
    if report.findings:
        page.heading("Findings")
    for finding in report.findings:
        add_finding(page, finding)
    if report.faults:
        page.heading("Failures outside the trials")
    for fault in report.faults:
        page.entry(fault.text, label=f"{fault.label}: ", label_style="red")


def add_finding(page: Page, finding: Finding, *, indent: int = 2) -> None:
    """Something the user should know, on what it rests, and what helps."""
    guess = " (estimate)" if finding.estimate else ""
    style = SEVERITY_STYLES[finding.severity]
    label = finding.severity.ljust(9)
    page.entry(f"{finding.message}{guess}", label=label, label_style=style, indent=indent)
    inner = indent + (2 if page.narrow else len(label))
    _add_evidence(page, finding.evidence, finding.numbers, inner)
    if finding.remedy:
        page.entry(finding.remedy, label="→ ", indent=inner)
    for line in finding.code:  # as it is, to be pasted
        page.line(Text(" " * (inner + 2) + page.safe(line)))


def add_estimates(page: Page, report: Report) -> None:
    """What the fitted laws say; none of it ran."""
    if report.estimates:
        page.heading("Estimates")
        page.pairs(pairs_of(report.estimates))


def add_touched(page: Page, files: Sequence[FileTouched]) -> None:
    """Files that the script itself touched while it was probed, and what else changed meanwhile."""
    told = [file for file in files if not file.listed]
    touched = [file for file in told if file.action != "save (not written)"]
    saves = [file for file in told if file.action == "save (not written)"]
    if told:
        page.heading("What the script itself did to files")
    _add_files(page, touched)
    if saves:
        names = ", ".join(file.path for file in saves[:3])
        more = f" and {len(saves) - 3} more" if len(saves) > 3 else ""
        page.entry(f"Saves not written: {names}{more}.")
    listed = [file for file in files if file.listed]
    if listed:
        page.heading("What else changed in the working folder")
        _add_files(page, listed)
        page.entry(LISTED)


def _add_files(page: Page, files: Sequence[FileTouched]) -> None:
    width = max((len(file.action) for file in files), default=0) + 2
    for file in files[:MAX_FILES]:
        page.whole(file.path, label=file.action.ljust(width), label_style="dim")
    if len(files) > MAX_FILES:
        page.entry(f"and {len(files) - MAX_FILES} more, see the record")


def add_ending(
    page: Page, files: Sequence[tuple[str, str]], next_command: str, others: Sequence[str] = ()
) -> None:
    """The files that were written, what to type next, and what else could be."""
    page.blank()
    width = max((len(label) for label, _ in files), default=0)
    for label, path in files:
        shown = f"{label.ljust(width)}  " if width else ""
        page.whole(path, label=f"Wrote {shown}", label_style="dim", indent=0)
    if next_command:
        page.whole(next_command, label="Next: ", label_style="bold", indent=0)
    for command in others:
        page.whole(command, label="  or  ", label_style="bold", indent=0)
