"""The report as JSON, and the schema of that JSON."""

from __future__ import annotations

from inspect import cleandoc
from typing import Any

import msgspec

from ..report import REPORT_VERSION, ComparisonReport, Report

SCHEMA_URL = "https://json-schema.org/draft/2020-12/schema"


def render(report: Report | ComparisonReport) -> str:
    """The whole report, every number in base units beside the texts; ends with a line break."""
    return msgspec.json.format(msgspec.json.encode(report), indent=1).decode() + "\n"


def schema_text() -> str:
    """JSON Schema of what `render` writes; `reports/schema.json` is this, committed."""
    return schema_of("report", REPORT_VERSION, Report | ComparisonReport)


def schema_of(name: str, version: object, kind: Any) -> str:
    """JSON Schema of what is called so in its title; ends with a line break.

    Args:
        kind: the type that is written as JSON.
    """
    title = {"$schema": SCHEMA_URL, "title": f"batchadvisor {name} {version}"}
    schema = {**title, **_described(msgspec.json.schema(kind))}
    return msgspec.json.format(msgspec.json.encode(schema), indent=1).decode() + "\n"


def _described(schema: Any) -> Any:
    """The schema with docstrings as they read: before 0.23 msgspec kept their indentation."""
    if isinstance(schema, list):
        return [_described(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: cleandoc(value)
        if name == "description" and isinstance(value, str)
        else _described(value)
        for name, value in schema.items()
    }
