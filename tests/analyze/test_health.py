"""A trace is checked before it is judged. The faults are planted; docs/traces.md lists them."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import msgspec
import pytest
from batchadvisor.errors import UsageError
from batchadvisor.records import Analysis
from batchadvisor.reports.builder.traces import trace_page
from batchadvisor.session.analyze import analyze
from hypothesis import given, settings
from hypothesis import strategies as st

from .. import pages
from .faults import FAULTS, as_text, changed, training
from .traces import launch, save
from .wholes import no_number_above_its_whole, shown

MADE = Path(__file__).parents[3] / "shared" / "made_traces"
LEFT = "the rest is judged"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.what)
def test_a_fault_is_said_and_judges_nothing(fault, tmp_path):
    path = save(tmp_path / "t.json", fault.events)
    text = re.sub(r"\s+", " ", shown(path, "--steps"))
    analysis = msgspec.json.decode(shown(path, "--json"), type=Analysis)
    assert fault.says in text
    (report,) = analysis.traces
    profile = report.profile
    assert fault.says in " ".join((*report.notes, *profile.left_out, profile.unrecorded))
    page = trace_page(analysis)
    assert fault.says in " ".join((page.headline, *page.notes))
    assert bool(profile.fault) is not fault.judged
    if fault.judged:
        clean = analyze([save(tmp_path / "clean.json", training())]).traces[0]
        graph = any(entry["name"] == "cudaGraphLaunch" for entry in fault.events)
        assert profile.busy_pct == pytest.approx(88 if graph else clean.profile.busy_pct, abs=2)
        assert report.verdict.limit == ("saturated" if graph else clean.verdict.limit)
    else:
        verdict = report.verdict
        assert (verdict.limit, verdict.larger_batch) == ("cannot tell", "unknown")
        assert profile.busy_pct is None
        assert verdict.remedy
    no_number_above_its_whole(analysis, text)


def test_numbers_as_text_are_read(tmp_path):
    events = changed(training(at=1.7e15), "kernel", as_text)
    changed(events, "cuda_runtime", as_text)
    changed(events, "user_annotation", lambda entry: entry.update(ts=f"{entry['ts']:.3f}"))
    (report,) = analyze([save(tmp_path / "t.json", events)]).traces
    assert report.profile.busy_pct == pytest.approx(10, abs=0.5)
    assert not report.profile.left_out
    assert not report.notes


def test_neighbours_that_overlap_and_whole_microseconds_are_no_fault(tmp_path):
    """A kernel may begin before its neighbour has ended; old clocks count whole microseconds."""
    events = changed(training(), "kernel", lambda entry: entry.update(ts=int(entry["ts"]), dur=55))
    changed(events, "kernel", lambda entry: entry.update(dur=0), 10)
    (report,) = analyze([save(tmp_path / "t.json", events)]).traces
    assert not report.profile.left_out
    assert not report.profile.fault


def test_host_functions_have_no_work_on_the_gpu(tmp_path):
    events = training() + [launch(100.0 * n, 5000 + n, 1, "cudaLaunchHostFunc") for n in range(40)]
    assert not analyze([save(tmp_path / "t.json", events)]).traces[0].profile.left_out


def test_the_table_of_the_docs():
    rows = ["| what is wrong in the trace | what `analyze` says of the GPU |", "|---|---|"]
    rows += [f"| {fault.what} | {LEFT if fault.judged else 'cannot tell'} |" for fault in FAULTS]
    pages.check_text(pages.ROOT / "docs/traces.md", "faults", "\n".join(rows))


@pytest.mark.parametrize(
    "content",
    [
        [[1700000000000000, 1700000000000100], [[0, 512], [0, 1024]]],
        [[1700000000000000, 1, 512, 3], [1700000000000100, 2, 512, 3]],
        [1, 2, 3],
    ],
    ids=["timeline", "raw timeline", "numbers"],
)
@pytest.mark.parametrize("packed", [False, True])
def test_a_timeline_of_memory_is_another_kind_of_file(content, packed, tmp_path):
    path = tmp_path / ("memory.json.gz" if packed else "memory.json")
    data = json.dumps(content).encode()
    path.write_bytes(gzip.compress(data) if packed else data)
    with pytest.raises(UsageError, match="another kind of file") as error:
        analyze([path])
    assert "export_memory_timeline" in error.value.what
    assert "cut" not in str(error.value)
    save(tmp_path / "t.json", training())
    assert analyze([tmp_path]).skipped


def collections():
    folders = (pages.ROOT.parent / "shared/traces", MADE)
    return [
        path
        for folder in folders
        for path in sorted(folder.rglob("*.json*"))
        if path.name != "expected.json"
    ]


@pytest.mark.parametrize("path", collections(), ids=lambda path: path.name)
def test_every_trace_of_the_collections(path, recorded):
    """No number above its whole, and no verdict on a GPU of which nothing is believed."""
    analysis = analyze([path])
    no_number_above_its_whole(analysis, shown(path, "--steps", "--kernels", "5"))
    for report in analysis.traces:
        if report.profile.fault:
            assert report.verdict.limit == "cannot tell"
            assert report.profile.busy_pct is None
        elif path.parent != MADE:
            assert not report.profile.left_out


MADE_SAYS = {
    "launchbound_impossible": "1 GPU event that ends after later ones of the same stream",
    "impossible_durations": "2 GPU events that end after later ones of the same stream",
    "graph_underrecorded": "for 30 of 40 launches the profiler recorded no work of the GPU",
    "ascend_strings": "events of an accelerator that this version does not read",
}


@pytest.mark.parametrize("name", MADE_SAYS)
def test_the_made_traces(name, recorded):
    path = MADE / f"{name}.json.gz"
    if not path.exists():
        pytest.skip(f"the made traces are not at {MADE}")
    (report,) = analyze([path]).traces
    assert MADE_SAYS[name] in " ".join(report.notes)
    if name == "launchbound_impossible":
        assert report.profile.busy_pct == pytest.approx(10, abs=0.2)
        assert report.breakdown.compute_s == pytest.approx(0.001, rel=0.02)
        clean = analyze([MADE / "launchbound_clean.json.gz"]).traces[0].verdict
        assert (report.verdict.limit, report.verdict.larger_batch) == (
            clean.limit,
            clean.larger_batch,
        )
    elif name != "impossible_durations":
        assert report.verdict.limit == "cannot tell"


@settings(max_examples=60)
@given(st.data())
def test_whatever_the_times_are_no_number_exceeds_its_whole(tmp_path_factory, data):
    events = training()
    times = st.one_of(
        st.floats(-1e4, 1e5), st.sampled_from([0, -1, 1e12, 1.7e15, "7.5", "N/A", None])
    )
    for _ in range(data.draw(st.integers(1, 12))):
        entry = data.draw(st.sampled_from(events))
        entry[data.draw(st.sampled_from(["ts", "dur"]))] = data.draw(times)
        if data.draw(st.booleans()):
            events.remove(data.draw(st.sampled_from(events)))
    path = save(tmp_path_factory.mktemp("any") / "t.json", events)
    no_number_above_its_whole(analyze([path]), shown(path, "--steps"))
