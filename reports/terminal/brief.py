"""The answer of one run on one screen: which size, why, what to type. `show` has the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.text import Text

from ...records import Choice
from ..text import SizesTable, TextReport
from ..words.wording import clean
from . import sections
from .answer import add_verdict
from .page import Page
from .sizes import USUAL_WIDTH, add_table

MOST_LINES = 25
"""Warnings fill what is left of them in a window of 80 columns."""
LABEL = "samples/s  "
OWN = "the script's own"
"""A sentence of the reason that has it tells the gain."""
BARS = "▁▂▃▄▅▆▇█"
PLAIN_BARS = "12345678"
"""Where the output has no blocks."""
SHOWN = (
    "batch", "step", "step±", "samples", "samples±", "peak", "occupancy_pct", "operators_pct",
    "outcome", "note",
)  # fmt: skip
"""Columns of the table."""
MOST_ROWS = 5
"""Rows that are shown of a table in which no size is marked."""


def render(
    text: TextReport,
    *,
    everything: str,
    next_command: str,
    try_command: str = "",
    width: int,
    color: bool,
    encoding: str = "utf-8",
) -> str:
    """Renders the parts of the answer that decide; see `answer.render` for the other arguments.

    Args:
        everything: the command that prints the whole answer.
        try_command: the command that tries what helps against the limit; may be empty.
    """
    ending = Page(width, encoding)
    _add_ending(ending, everything, next_command)
    for reason, sureness in _shorter(text):
        page = Page(width, encoding)
        told = sureness
        add_verdict(page, text, reason, sureness)
        _add_change(page, text)
        _add_device(page, text)
        _add_picture(page, text)
        _add_table(page, text.sizes)
        _add_limit(page, text, try_command)
        _add_ranks(page, text)
        room = MOST_LINES - page.num_lines - ending.num_lines
        if room > 0:  # for a warning, or for how many there are
            break
    _add_warnings(page, text, told, room=room)
    page.add(ending)
    return page.render(color=color)


def _shorter(text: TextReport) -> Iterator[tuple[str, str]]:
    """Reason and sureness, and again in fewer words: what qualifies them is in the whole answer."""
    reason, sureness = text.report.reason, text.report.sureness
    yield reason, sureness
    first = sureness.partition("; ")[0]
    yield reason, first
    sentences = reason.rstrip(".").split(". ")
    kept = [sentences[0], *(each for each in sentences[1:] if OWN in each)]
    yield ". ".join(kept) + "." * bool(reason), first


def _add_change(page: Page, text: TextReport) -> None:
    """The line to change; its parts stand beside each other as far as they fit."""
    label, line = "Change: ", ""
    for part in text.change if text.report.change else ():
        joined = f"{line}  {part}" if line else part
        if line and cell_len(label) + cell_len(page.safe(joined)) > page.width:
            page.entry(line, label=label, style="bold", indent=0)
            label, joined = " " * len(label), part
        line = joined
    if line:
        page.entry(line, label=label, style="bold", indent=0)


def _add_device(page: Page, text: TextReport) -> None:
    """Where it was measured, in one line."""
    measured = next((f.text for f in text.report.circumstances if f.label == "Measured on"), "")
    if measured:
        words = measured.partition(". ")[0].rstrip(".")
        if len(words) > page.width - len("Measured on: "):
            words = words.partition(", ")[0]
        page.entry(f"{words}.", label="Measured on: ", label_style="dim", indent=0)


def _add_picture(page: Page, text: TextReport) -> None:
    """Throughput over the sizes; the recommended one is in brackets."""
    advice = text.report.advice
    chosen = advice.recommended
    marked = (advice.native, chosen, advice.fastest, advice.largest)
    every = advice.sizes or tuple(choice for choice in marked if choice is not None)
    by_size = {each.batch_size: each for each in every if each.samples_per_s is not None}
    timed = [by_size[size] for size in sorted(by_size)]
    page.blank()
    names = {choice.batch_size: str(choice.batch_size) for choice in timed}
    if chosen is not None and chosen.batch_size in names:
        names[chosen.batch_size] = f"[{chosen.batch_size}]"
    widths = {size: len(name) + 1 for size, name in names.items()}
    while sum(widths.values()) > page.width - len(LABEL) and len(widths) > 2:
        widths.pop(_least_needed(timed, widths, chosen))
    if len(widths) < 2:
        return
    bars = BARS if page.safe(BARS) == BARS else PLAIN_BARS
    rates = {each.batch_size: each.samples_per_s.median for each in timed if each.samples_per_s}
    most = max(rates.values())
    line, below = Text(LABEL), Text("batch".ljust(len(LABEL)))
    for size, room in widths.items():
        style = "bold green" if chosen is not None and size == chosen.batch_size else ""
        bar = bars[max(0, round(len(bars) * rates[size] / most) - 1)]
        line.append(bar.rjust(room - (style != "")) + " " * (style != ""), style=style)
        below.append(names[size].rjust(room), style=style)
    page.line(line)
    page.line(below)


def _least_needed(timed: Sequence[Choice], shown: dict[int, int], chosen: Choice | None) -> int:
    """The size whose neighbours are the nearest to each other; never an end or the chosen one."""
    sizes = [each.batch_size for each in timed if each.batch_size in shown]
    kept = None if chosen is None else chosen.batch_size
    inner = [
        (after / before, size)
        for before, size, after in zip(sizes, sizes[1:], sizes[2:], strict=False)
        if size != kept
    ]
    return min(inner)[1] if inner else sizes[0]


def _add_table(page: Page, table: SizesTable) -> None:
    """The script's own size, the recommended one, the fastest and the largest."""
    places = [at for at, row in enumerate(table.rows) if row.marks]
    places = places or list(range(len(table.rows)))[:MOST_ROWS]
    if not places:
        return
    fine = all(table.rows[at].state == "ok" for at in places)
    shown = [key for key in SHOWN if key != "outcome" or not fine]
    # Short words need a legend, for which a usual window has no line.
    narrow = page.width < USUAL_WIDTH
    _, short, _ = add_table(page, table.part(places, shown, short=narrow))
    if short and narrow:
        page.entry("; ".join(table.short_marks) + ".", style="dim")


def _add_limit(page: Page, text: TextReport, try_command: str) -> None:
    """What limits the step, what helps, and how to try it."""
    limit = text.report.limit
    if limit is None:
        return
    page.blank()
    page.entry(limit.message, label=f"{limit.limit}: ", label_style="bold", indent=0)
    if limit.remedy:
        page.entry(limit.remedy.partition("; ")[0], label="→ ", indent=2)
    if try_command:
        page.whole(try_command, label="Try it: ", label_style="dim", indent=0)


def _add_ranks(page: Page, text: TextReport) -> None:
    """What several ranks cost; the rest of it is in `show`."""
    if text.ranks:
        page.pairs(sections.pairs_of(text.ranks[:2]), indent=0)


def _add_warnings(page: Page, text: TextReport, sureness: str, *, room: int) -> None:
    """The last batch where it does harm, then errors and warnings, as far as lines are left.

    Args:
        sureness: as it is shown; what it says already is not said again.
    """
    report = text.report
    changed = [file for file in text.files if not file.listed]
    findings = [
        each
        for each in report.advice.findings
        if each.severity != "info" and each.message not in sureness
    ]
    told = any(each.rule.startswith("tails.") for each in findings)
    said: list[tuple[str, str, str]] = []
    if report.tail is not None and not told:
        bad = [
            sentence
            for sentence, is_bad in zip(report.tail.texts, text.tail_bad, strict=True)
            if is_bad
        ]
        said += [("last batch: ", sentence, "yellow") for sentence in bad[:1]]
    said += [("failed: ", fault.text, "red") for fault in report.faults]
    for each in findings:
        helps = f" → {each.remedy}" if each.severity == "error" and each.remedy else ""
        style = sections.SEVERITY_STYLES[each.severity]
        said.append((f"{each.severity}: ", clean(f"{each.message}{helps}"), style))
    if any(file.action != "save (not written)" for file in changed):
        said.append(("", "the script itself changed files: see them in the whole answer", "dim"))
    for number, (label, sentence, style) in enumerate(said):
        part = Page(page.width, page.encoding)
        part.entry(sentence, label=label, label_style=style, indent=0)
        last = number == len(said) - 1
        if part.num_lines > room - (0 if last else 1):
            left = len(said) - number
            page.entry(f"and {left} more: see all of it", style="dim", indent=0)
            return
        page.add(part)
        room -= part.num_lines


def _add_ending(page: Page, everything: str, next_command: str) -> None:
    """Where the rest is, and what to type next."""
    page.whole(everything, label="All of it: ", label_style="dim", indent=0)
    if next_command:
        page.whole(next_command, label="Next: ", label_style="bold", indent=0)
