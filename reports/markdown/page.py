"""The report as Markdown, for pull requests and issues; as GitHub and GitLab read it."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from ..report import (
    Fact,
    Finding,
    LimitText,
    MemorySection,
    Report,
    SplitSection,
    Table,
)
from ..words.compared import not_compared
from ..words.wording import plural

MARK = "<!-- batchadvisor report -->"
MOST_ROWS, MOST_GROWN = 10, 2
"""Rows of a long table that are shown, and tables of what grew."""
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~$@!&:])")
_LIST = re.compile(r"^(\d*)([-+.)=])(?=\s|$)")
"""Marks that would open a list at the start of a line: `- `, `1. `."""
_HARMLESS_COLON = re.compile(r"\\:(?!//)")


def render(report: Report) -> str:
    """The whole text; ends with a line break."""
    return "\n".join([MARK, "", *_run(report)]).rstrip() + "\n"


def escape(text: str) -> str:
    r"""Text that Markdown shows as it is: no markup, no HTML, no mention, no bare link.

    >>> escape("a_b <img> | @user [x](y)"), escape("see https://example.org: x")
    ('a\\_b \\<img\\> \\| \\@user \\[x\\](y)', 'see https\\://example.org: x')
    """
    return _HARMLESS_COLON.sub(":", _SPECIAL.sub(r"\\\1", text))


def paragraph(text: str) -> str:
    r"""Escaped text that does not open a list where it begins a line.

    >>> paragraph("1. x"), paragraph("- x"), paragraph("1.5 x")
    ('1\\. x', '\\- x', '1.5 x')
    """
    return _LIST.sub(r"\1\\\2", escape(text))


def code(text: str) -> str:
    """Text as a code span, whatever backticks it holds.

    >>> code("a `b`"), code("x")
    ('`` a `b` ``', '`x`')
    """
    longest = max((len(fence) for fence in re.findall("`+", text)), default=0)
    if not longest:
        return f"`{text}`"
    fence = "`" * (longest + 1)
    return f"{fence} {text} {fence}"


def _run(report: Report) -> list[str]:
    lines = [f"### {escape(report.headline)}", ""]
    if report.reason:
        lines += [paragraph(report.reason), ""]
    if report.sureness:
        lines += [f"**Sureness:** {escape(report.sureness)}.", ""]
    if report.change:
        lines += [f"**Change:** {code(report.change)}", ""]
    for notice in report.notices:
        lines += [f"> {escape(notice)}", ""]
    lines += [*facts_lines(report.circumstances), ""]
    for table in report.tables:
        lines += [f"#### {escape(table.title)}", "", *table_lines(table)]
    lines += _split(report.split) if report.split is not None else []
    for device in report.devices:
        title = device.name if len(report.devices) > 1 else "Sizes"
        lines += [f"#### {escape(title)}", ""]
        if len(report.devices) > 1:
            lines += [paragraph(device.headline), ""]
        lines += table_lines(device.table)
    lines += _explained(report)
    for device in report.devices:
        for listed in (device.hot, device.operators, *device.grown[:MOST_GROWN]):
            if listed is not None:
                lines += folded(listed.title, table_lines(first_rows(listed)))
    lines += folded("This run", facts_lines(report.identity))
    return lines


def _split(section: SplitSection) -> list[str]:
    lines = ["#### Split plan", ""]
    lines += table_lines(section.shares) if section.shares is not None else []
    lines += [part for text in section.texts for part in (paragraph(text), "")]
    lines += table_lines(section.options) if section.options is not None else []
    if section.snippet:
        lines += folded("Sampler and loss weight to paste", python_lines(section.snippet))
    return lines


def _explained(report: Report) -> list[str]:
    lines: list[str] = []
    limit = report.limit
    if limit is not None:
        lines += ["#### What limits the step", "", *limit_lines(limit)]
    if report.memory:
        lines += ["#### Where the memory goes", "", *memory_lines(report.memory)]
    for title, facts in (
        ("What the callback saw", report.watched),
        ("Several ranks", report.distribution),
    ):
        if facts:
            lines += [f"#### {title}", "", *facts_lines(facts), ""]
    if report.training:
        lines += ["#### What it does to the training", "", *facts_lines(report.training), ""]
        lines += [not_compared(report.advice), ""]
    if report.tail is not None:
        lines += ["#### Last batch of the epoch", ""]
        lines += [part for text in report.tail.texts for part in (paragraph(text), "")]
    if report.findings:
        lines += ["#### Findings", ""]
    for finding in report.findings:
        lines += finding_lines(finding)
    lines += [""] if report.findings else []
    for title, facts in (
        ("Failures outside the trials", report.faults),
        ("Estimates", report.estimates),
    ):
        if facts:
            lines += [f"#### {title}", "", *facts_lines(facts), ""]
    return lines


def limit_lines(limit: LimitText) -> list[str]:
    """What limits the step, on what it rests, and what helps."""
    lines = [f"**{escape(limit.limit)}**: {escape(limit.message)}", ""]
    if limit.numbers is not None:
        lines += table_lines(limit.numbers)
    elif limit.evidence:
        lines += [paragraph(limit.evidence), ""]
    for text in (limit.larger, f"→ {limit.remedy}" if limit.remedy else ""):
        lines += [paragraph(text), ""] if text else []
    return lines


def finding_lines(finding: Finding) -> list[str]:
    """An entry of a list, which no empty line ends."""
    guess = " (estimate)" if finding.estimate else ""
    extra = f"<br>{escape(finding.evidence)}" if finding.evidence else ""
    remedy = f"<br>→ {escape(finding.remedy)}" if finding.remedy else ""
    lines = [f"- **{finding.severity}**: {escape(finding.message)}{guess}{extra}{remedy}"]
    if finding.code:
        lines += ["", *(f"  {line}".rstrip() for line in python_lines("\n".join(finding.code)))]
    return lines


def python_lines(text: str) -> list[str]:
    """Code in fences; no line of ours begins with backticks: names stand in comments."""
    return ["```python", *text.rstrip().splitlines(), "```"]


def memory_lines(parts: Sequence[MemorySection]) -> list[str]:
    """Sizes of a run or an estimate; long tables are folded."""
    lines: list[str] = []
    for part in parts:
        lines += [f"##### {escape(part.name)}", ""] if part.name else []
        lines += [*facts_lines(part.facts), ""]
        first, *others = part.tables or (None,)
        lines += table_lines(first) if first is not None else []
        for table in others:
            lines += folded(table.title, table_lines(table))
    return lines


def facts_lines(facts: Sequence[Fact]) -> list[str]:
    return [f"- {escape(fact.label)}: {escape(fact.text)}" for fact in facts]


def first_rows(table: Table) -> Table:
    """The first rows of a long table."""
    left = len(table.rows) - MOST_ROWS
    if left <= 0:
        return table
    note = f"{plural(left, 'further row')} in the HTML and JSON reports."
    return Table(
        title=table.title,
        columns=table.columns,
        rows=table.rows[:MOST_ROWS],
        notes=(note, *table.notes),
    )


def table_lines(table: Table) -> list[str]:
    lines: list[str] = []
    if table.rows:
        titles = [
            f"{escape(column.title)} {escape(column.unit)}".strip() or " "
            for column in table.columns
        ]
        lines.append(f"| {' | '.join(titles)} |")
        lines.append(f"|{'|'.join(':--' if column.left else '--:' for column in table.columns)}|")
    for row in table.rows:
        cells = [escape(cell) for cell in row.cells]
        if "recommended" in row.marks:
            cells = [f"**{cell}**" if cell else cell for cell in cells]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [""] if table.rows else []
    for note in table.notes:
        lines += [paragraph(note), ""]
    return lines


def folded(title: str, lines: Sequence[str]) -> list[str]:
    shown = html.escape(title)  # inside HTML, where backslashes would be seen
    return [f"<details><summary>{shown}</summary>", "", *lines, "", "</details>", ""]
