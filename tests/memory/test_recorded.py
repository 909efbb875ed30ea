"""Snapshots that torch's own CUDA allocator wrote, read as a user's."""

import re

import pytest
from batchadvisor.reports.builder.memory import build_memory_page, snapshot_sections
from batchadvisor.reports.html.svg import shapes
from batchadvisor.session.memory import analyze_memory

from tests.snapshots import CASES, pickled, snapshot_of

TRAININGS = [name for name, case in CASES.items() if case["model"]]
REFUSED = [name for name in TRAININGS if CASES[name]["until_refused"]]


@pytest.fixture
def device(request, tmp_path):
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickled(request.param))
    (device,) = analyze_memory(path).devices
    return device, snapshot_of(request.param)


@pytest.mark.parametrize("device", CASES, indirect=True)
def test_the_history_leads_to_the_state(device):
    seen, snapshot = device
    blocks = [block for segment in snapshot.segments for block in segment.blocks]
    assert seen.reserved_bytes == sum(block.size for block in blocks)
    assert seen.allocated_bytes == sum(block.size for block in blocks if block.active)
    assert seen.peak is not None, seen.unavailable
    assert seen.peak.num_bytes >= seen.requested_bytes
    assert max(seen.timeline.active_bytes) == seen.peak.num_bytes
    assert max(seen.timeline.reserved_bytes) >= seen.peak.num_bytes


@pytest.mark.parametrize("device", TRAININGS, indirect=True)
def test_lines_are_those_of_the_training_and_a_steady_one_does_not_grow(device):
    seen, snapshot = device
    files = {line.line.split(":")[0] for line in seen.peak.lines if line.line}
    assert "gpu_probes/six_models.py" in files
    refused = any(event.action == "oom" for event in snapshot.traces[0])
    assert (seen.out_of_memory is not None) is refused
    assert refused or not seen.growth


@pytest.mark.parametrize("device", REFUSED, indirect=True)
def test_the_request_that_failed_is_seen_event_by_event(device):
    seen, snapshot = device
    failed, line = seen.out_of_memory, seen.failure
    (event,) = [event for event in snapshot.traces[0] if event.action == "oom"]
    assert failed.requested_bytes == event.size
    assert failed.line.startswith("gpu_probes/six_models.py")
    assert line.positions == tuple(range(line.positions[0], line.positions[-1] + 1))
    assert snapshot.traces[0][failed.position] is event
    at = line.positions.index(failed.position)
    assert line.active_bytes[at] + failed.requested_bytes > max(line.reserved_bytes[: at + 1])
    whole = dict(zip(seen.timeline.positions, seen.timeline.active_bytes, strict=True))
    around = dict(zip(line.positions, line.active_bytes, strict=True))
    both = whole.keys() & around.keys()
    assert both
    assert {key: whole[key] for key in both} == {key: around[key] for key in both}


@pytest.mark.parametrize("name", REFUSED)
def test_its_page_says_when_each_number_was_so(name, tmp_path):
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickled(name))
    analysis = analyze_memory(path)
    (section,) = snapshot_sections(analysis)
    facts = {fact.label: fact.text for fact in section.facts}
    assert "when it was asked for" in build_memory_page(analysis).headline
    assert next(iter(facts)) == "out of memory"
    assert facts["the rest"].startswith("as the snapshot was taken, ")
    assert " as the snapshot was taken, " in facts["largest free piece"]
    assert "for the request that failed " in facts["largest free piece"]
    whole, near = section.charts
    assert near.key.startswith("failure_")
    assert near.x[0] < 0 <= near.x[-1]
    (mark,) = near.marks
    assert (mark.value, mark.kind) == (0.0, "failed")
    (refused,) = [value for value in near.series[-1].values if value is not None]
    assert near.x[near.series[-1].values.index(refused)] == 0
    ends = [
        shape
        for shape in shapes(whole)
        if shape.text.isdigit() and shape.attributes["class"] == "dim"
    ]
    highest = min(y for line in whole.series for y in drawn(whole, line))
    assert ends
    assert all(float(shape.attributes["y"]) < highest for shape in ends), "above the curve"


def drawn(chart, line):
    """Pixels from the top, of every value."""
    (circle,) = {
        shape.attributes["d"]
        for shape in shapes(chart)
        if f"line s{line.color}" in shape.attributes["class"]
    }
    y = 0.0
    for number, pair in enumerate(re.findall(r"(-?[\d.]+) ?(-?[\d.]+)", circle)):
        y = float(pair[1]) if not number else y + float(pair[1])
        yield y
