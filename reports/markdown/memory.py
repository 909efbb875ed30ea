"""A snapshot of the memory as Markdown, for pull requests and issues."""

from __future__ import annotations

from ..report import MemoryReport
from .page import MARK, escape, facts_lines, table_lines


def render(report: MemoryReport) -> str:
    """The whole text; ends with a line break."""
    lines = [MARK, "", f"### {escape(report.headline)}", ""]
    lines += [
        f"- **{finding.severity}**: {escape(finding.message)}<br>{escape(finding.evidence)}"
        f"<br>→ {escape(finding.remedy)}"
        for finding in report.findings
    ]
    lines += [""] if report.findings else []
    for device in report.devices:
        lines += [f"#### {escape(device.name)}", ""] if device.name else []
        lines += [*facts_lines(device.facts), ""] if device.facts else []
        for table in device.tables:
            lines += [f"##### {escape(table.title)}", "", *table_lines(table)]
    lines += [part for notice in report.notices for part in (f"> {escape(notice)}", "")]
    lines += facts_lines(report.identity)
    return "\n".join(lines).rstrip() + "\n"
