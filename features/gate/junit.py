"""The gate's answer as JUnit XML, which services of continuous integration show as tests."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from ...reports.words.wording import clean
from .page import headline, sentence
from .records import Condition, Gate, Result

XML_MARK = '<?xml version="1.0" encoding="UTF-8"?>\n<!-- batchadvisor gate -->'
SUITE = "batchadvisor compare"


def render(gate: Gate) -> str:
    """One test for each condition, whole text; ends with a line break.

    An exceeded limit is a failure. What the intervals do not tell is skipped, since it neither
    passed nor failed. Where nothing can be compared, one test has an error.
    """
    cases = [_case(each.condition, each) for each in gate.results if each.condition is not None]
    if gate.reasons:
        case = ET.Element("testcase", classname=SUITE, name="the runs can be compared")
        message = clean("; ".join(gate.reasons))
        ET.SubElement(case, "error", message=message, type="cannot be compared")
        cases.append(case)
    suite = ET.Element(
        "testsuite",
        name=SUITE,
        tests=str(len(cases)),
        failures=str(sum(case.find("failure") is not None for case in cases)),
        errors=str(sum(case.find("error") is not None for case in cases)),
        skipped=str(sum(case.find("skipped") is not None for case in cases)),
    )
    suite.extend(cases)
    ET.SubElement(suite, "system-out").text = headline(gate)
    whole = ET.Element("testsuites")
    whole.append(suite)
    ET.indent(whole)
    return f"{XML_MARK}\n{ET.tostring(whole, encoding='unicode')}\n"


def _case(condition: Condition, result: Result) -> ET.Element:
    case = ET.Element("testcase", classname=SUITE, name=condition.text)
    if result.outcome == "exceeded":
        ET.SubElement(case, "failure", message=sentence(result), type="exceeded")
    elif result.outcome == "cannot tell":
        ET.SubElement(case, "skipped", message=f"cannot tell: {sentence(result)}")
    return case
