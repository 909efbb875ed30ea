"""A plan over records of several types as Markdown, for pull requests and issues."""

from __future__ import annotations

from ..report import PlanReport
from .page import MARK, escape, facts_lines, folded, paragraph, table_lines


def render(report: PlanReport) -> str:
    """The whole text; ends with a line break."""
    lines = [MARK, "", f"### {escape(report.headline)}", ""]
    lines += [part for notice in report.notices for part in (f"> {escape(notice)}", "")]
    for section in report.sections:
        lines += [f"#### {escape(section.title)}", ""]
        lines += table_lines(section.table) if section.table is not None else []
        lines += [part for text in section.texts for part in (paragraph(text), "")]
    if report.findings:
        lines += ["#### Findings", ""]
    for finding in report.findings:
        guess = " (estimate)" if finding.estimate else ""
        more = "".join(
            f"<br>{escape(text)}"
            for text in (finding.evidence, f"→ {finding.remedy}" if finding.remedy else "")
            if text
        )
        lines.append(f"- **{finding.severity}**: {escape(finding.message)}{guess}{more}")
    lines += [""] if report.findings else []
    if report.snippet:
        # No line of it begins with backticks: names stand in comments.
        code = ["```python", *report.snippet.rstrip().splitlines(), "```"]
        lines += folded("Sampler and loss weight to paste", code)
    lines += folded("The records", facts_lines(report.identity))
    return "\n".join(lines).rstrip() + "\n"
