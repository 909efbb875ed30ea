"""The gate's answer as a page, and as JUnit XML.

Services of continuous integration show JUnit XML as tests.
"""

from __future__ import annotations

from xml.etree import ElementTree as ET

from ...records import Spread
from ...reports.blocks import Document, Facts, Section, paragraphs
from ...reports.report import Column, Fact, Row, Table
from ...reports.words.wording import clean, plural
from ...units import format_bytes, format_measured, format_seconds
from .records import ROUNDS_NEEDED, Condition, Gate, Measure, Result

NO_CONDITION = "-"
XML_MARK = '<?xml version="1.0" encoding="UTF-8"?>\n<!-- batchadvisor gate -->'
SUITE = "batchadvisor compare"


def build_page(gate: Gate, names: tuple[str, str]) -> Document:
    """What people read.

    Args:
        names: of the two sides.
    """
    names = (clean(names[0]), clean(names[1]))
    return Document(
        title=f"{names[0]} and {names[1]}",
        headline=headline(gate),
        blocks=(
            *paragraphs(map(clean, _notices(gate)), "warning"),
            *((_section(gate, names),) if gate.results else ()),
            Section(title="The records", blocks=(_identity(gate, names),), shown="files"),
        ),
    )


def headline(gate: Gate) -> str:
    """The verdict in one sentence."""
    if gate.verdict == "cannot be compared":
        return clean(f"Cannot be compared: {'; '.join(gate.reasons)}")
    at = f"at batch size {gate.batch_size}"
    of_interest = {"fails": "exceeded", "cannot tell": "cannot tell"}.get(gate.verdict)
    said = "; ".join(sentence(each) for each in gate.results if each.outcome == of_interest)
    if gate.verdict == "compared":
        return f"Compared {at}; no condition was given"
    if gate.verdict == "passes":
        return f"Passes {at}: {'; '.join(sentence(each) for each in gate.results)}"
    return f"{gate.verdict.capitalize()} {at}: {said}"


def sentence(result: Result) -> str:
    """One result in words.

    A condition that is kept says so, since the interval lies within its limit.
    """
    change = f"{result.measure} {percent(result.ratio.median)} ({interval(result)})"
    if result.condition is None:
        return f"{change}, {result.outcome}"
    words = {
        "exceeded": "beyond",
        "kept": "within",
        "cannot tell": "which may be on either side of",
    }
    return f"{change}, {words[result.outcome]} the limit of {limit(result.condition)}"


def percent(ratio: float) -> str:
    """A ratio as a change in percent.

    >>> percent(1.0714), percent(0.95), percent(1.0)
    ('+7.1%', '-5.0%', '+0.0%')
    """
    return f"{round((ratio - 1) * 100, 1) + 0.0:+.1f}%"


def limit(condition: Condition) -> str:
    """The limit of a condition: its change in percent."""
    return f"{condition.limit * 100:+g}%"


def interval(result: Result) -> str:
    """Both ends of the interval as changes; too few rounds have none."""
    if not result.has_interval:
        return "no interval"
    return f"{percent(result.ratio.low)} to {percent(result.ratio.high)}"


def _notices(gate: Gate) -> list[str]:
    notices = [f"Cannot be compared: {reason}." for reason in gate.reasons] if gate.results else []
    if gate.differs:
        changed = ", ".join(
            f"{label} ({before or 'none'}, then {after or 'none'})"
            for label, before, after in gate.differs
        )
        notices.append(f"Not the same on both sides: {changed}.")
    timed = any(each.measure != "peak_memory" for each in gate.results)
    if timed and gate.rounds < ROUNDS_NEEDED:
        notices.append(
            f"Times need {ROUNDS_NEEDED} rounds at least, a run of each side one right after the "
            f"other: here is {gate.rounds or 'none'}. Two processes of one script may differ by "
            "several per cent."
        )
    alone = gate.runs_before + gate.runs_after - 2 * gate.rounds
    if timed and gate.rounds and alone:
        notices.append(f"{plural(alone, 'run')} took no turns and did not count for times.")
    notices += [
        f"{each.measure}: about {plural(each.enough_rounds, 'round')} should tell."
        for each in gate.results
        if each.enough_rounds is not None and each.condition is not None
    ]
    return notices


def _section(gate: Gate, names: tuple[str, str]) -> Section:
    columns = (
        Column(title="measure", left=True),
        Column(title="before"),
        Column(title="after"),
        Column(title="change"),
        Column(title="interval"),
        Column(title="fails if"),
        Column(title="outcome", left=True),
    )
    rows = tuple(
        Row(
            cells=(
                each.measure,
                _value(each.measure, each.before),
                _value(each.measure, each.after),
                percent(each.ratio.median),
                interval(each),
                NO_CONDITION if each.condition is None else _fails_if(each.condition),
                each.outcome,
            )
        )
        for each in gate.results
    )
    text = (
        f"{plural(gate.runs_before, 'run')} before, in {names[0]}, {gate.runs_after} after, in "
        f"{names[1]}, {plural(gate.rounds, 'round')} in turn. The intervals hold what changes from "
        "process to process and from run to run; a limit is exceeded where all of the interval "
        "lies beyond it."
    )
    title = f"Batch size {gate.batch_size}"
    table = Table(title=title, columns=columns, rows=rows)
    return Section(title=title, blocks=(table, *paragraphs([text])))


def _fails_if(condition: Condition) -> str:
    return f"{'>' if condition.above else '<'}{limit(condition)}"


def _value(measure: Measure, spread: Spread) -> str:
    if measure == "peak_memory":
        return format_bytes(spread.median)
    if measure == "step_time":
        return format_seconds(spread.median)
    error = spread.relative_half_width if spread.num_samples > 1 else 1.0
    return f"{format_measured(spread.median, error)} samples/s"


def _identity(gate: Gate, names: tuple[str, str]) -> Facts:
    facts = [
        ("before", f"{names[0]}: {plural(gate.runs_before, 'run')}"),
        ("after", f"{names[1]}: {plural(gate.runs_after, 'run')}"),
        ("device", clean(gate.device)),
    ]
    return Facts(facts=tuple(Fact(label=label, text=text) for label, text in facts if text))


def junit_xml(gate: Gate) -> str:
    """JUnit XML: one test for each condition, whole text; ends with a line break.

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
