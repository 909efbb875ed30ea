"""The JSON of a report: stored whole, and described by the published schema."""

import os

import msgspec
import pytest
from batchadvisor.reports.builder.run import build_report
from batchadvisor.reports.data import report as data
from batchadvisor.reports.html import ASSETS
from batchadvisor.reports.report import ComparisonReport, Report

from . import samples
from .golden import agrees
from .test_markdown import comparison

SCHEMA = ASSETS.parents[1] / "schema.json"
EVERY = [samples.cpu, samples.gpu, samples.nothing_fits, samples.interrupted]


@pytest.mark.parametrize("sample", EVERY, ids=lambda sample: sample.__name__)
def test_whole_text(sample):
    agrees(f"{sample.__name__}.json", data.render(build_report(*sample())))


def test_the_published_schema_is_that_of_the_code():
    """Run with BATCHADVISOR_UPDATE_GOLDEN=1, this writes it anew; a change needs a new version."""
    if os.environ.get("BATCHADVISOR_UPDATE_GOLDEN"):
        SCHEMA.write_text(data.schema_text())
    assert SCHEMA.read_text() == data.schema_text()


def check(value, schema, definitions, path="$"):
    """Holds a value against a schema: the keywords that ours uses, and no others."""
    known = {"$ref", "anyOf", "discriminator", "type", "properties", "required", "items",
             "prefixItems", "minItems", "maxItems", "enum", "additionalProperties", "default",
             "title", "description", "$schema", "$defs", "minimum"}  # fmt: skip
    assert set(schema) <= known, f"{path}: {set(schema) - known}"
    if "$ref" in schema:
        return check(value, definitions[schema["$ref"].split("/")[-1]], definitions, path)
    if "anyOf" in schema:
        errors = []
        for kind in schema["anyOf"]:
            try:
                return check(value, kind, definitions, path)
            except AssertionError as error:
                errors.append(str(error))
        raise AssertionError(f"{path}: {errors}")
    if "enum" in schema:
        assert value in schema["enum"], f"{path}: {value!r}"
        return None
    kinds = {"string": str, "integer": int, "number": (int, float), "boolean": bool,
             "null": type(None), "array": list, "object": dict}  # fmt: skip
    if "type" in schema:
        assert isinstance(value, kinds[schema["type"]]), f"{path}: {value!r}"
        assert not (isinstance(value, bool) and schema["type"] != "boolean"), path
    if "minimum" in schema:
        assert value >= schema["minimum"], f"{path}: {value!r}"
    if isinstance(value, dict):
        assert set(schema.get("required", ())) <= set(value), path
        fields = schema.get("properties", {})
        extra = schema.get("additionalProperties", {})
        for key, inner in value.items():
            part = fields.get(key, extra if isinstance(extra, dict) else {})
            check(inner, part, definitions, f"{path}.{key}")
    if isinstance(value, list):
        for number, inner in enumerate(value):
            check(inner, schema.get("items") or {}, definitions, f"{path}[{number}]")
    return None


def two_runs():
    return comparison(samples.cpu(), samples.gpu())


@pytest.mark.parametrize("make", [*EVERY, two_runs], ids=lambda make: make.__name__)
def test_what_is_written_keeps_the_schema_and_can_be_read_back(make):
    report = make() if make is two_runs else build_report(*make())
    text = data.render(report)
    assert msgspec.json.decode(text, type=Report | ComparisonReport) == report
    schema = msgspec.json.decode(SCHEMA.read_bytes())
    check(msgspec.json.decode(text), schema, schema["$defs"])


def test_a_wrong_value_is_seen():
    schema = msgspec.json.decode(SCHEMA.read_bytes())
    value = msgspec.json.decode(data.render(build_report(*samples.cpu())))
    value["devices"][0]["sizes"][0]["batch_size"] = "16"
    with pytest.raises(AssertionError, match="batch_size"):
        check(value, schema, schema["$defs"])
