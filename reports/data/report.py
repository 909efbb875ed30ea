"""The report as JSON, and the schema of that JSON."""

from __future__ import annotations

from typing import Any

import msgspec

from ..report import REPORT_VERSION, ComparisonReport, Report

SCHEMA_URL = "https://json-schema.org/draft/2020-12/schema"


def render(report: Report | ComparisonReport) -> str:
    """The whole report, every number in base units beside the texts; ends with a line break."""
    return msgspec.json.format(msgspec.json.encode(report), indent=1).decode() + "\n"


def schema() -> dict[str, Any]:
    """JSON Schema of what `render` writes; `reports/schema.json` is this, committed."""
    definitions = msgspec.json.schema(Report | ComparisonReport)
    title = {"$schema": SCHEMA_URL, "title": f"batchadvisor report {REPORT_VERSION}"}
    return {**title, **definitions}


def schema_text() -> str:
    """The schema as it stands in `reports/schema.json`."""
    return msgspec.json.format(msgspec.json.encode(schema()), indent=1).decode() + "\n"
