"""The anatomy of a step: recorded traces against their metrics, small ones worked out by hand."""

import functools
from collections import defaultdict

import numpy as np
import pytest
from batchadvisor.probes.trace import anatomy
from batchadvisor.probes.trace.anatomy import anatomy_of, chosen_steps
from batchadvisor.probes.trace.metrics import Analysis
from batchadvisor.probes.trace.reader import read_trace

from .test_metrics import kernel, span, work
from .test_reference import TRACES

RECORDED = sorted(
    path
    for path in TRACES.rglob("*")
    if path.name.endswith((".json", ".json.gz")) and "expected" not in path.name
)


@functools.cache
def looked_at(path):
    analysis = Analysis(read_trace(path))
    return analysis, analysis.result(), anatomy_of(analysis, path.name)


@pytest.fixture(params=RECORDED, ids=lambda path: path.relative_to(TRACES).as_posix())
def case(request, recorded):
    return looked_at(request.param)


def pictures(path):
    analysis = Analysis(read_trace(path))
    return anatomy_of(analysis, "synthetic")


def picture(path):
    """The pictures of a trace, and the only one of them."""
    drawn = pictures(path)
    (step,) = drawn.steps
    return drawn, step


def lane(step, kind):
    (found,) = [lane for lane in step.lanes if lane.kind == kind]
    return found


def of_device(devices, number):
    (found,) = [device for device in devices if device.device == number]
    return found


def by_cause(metrics, window_s):
    """Idle time of a device in nanoseconds, and the part that was drained."""
    fields = metrics.idle.__struct_fields__
    times = {
        field.removesuffix("_pct"): round(getattr(metrics.idle, field) * window_s * 1e7)
        for field in fields
    }
    del times["total"]
    return times, times.pop("drained")


def said(anatomy, spans):
    """(kind, start, end) of each span in microseconds."""
    return [
        (anatomy.labels[label].kind, start / 1e3, end / 1e3)
        for start, end, label in zip(spans.start_ns, spans.end_ns, spans.label, strict=True)
    ]


class TestRecordedTraces:
    def test_the_gaps_add_up_to_what_the_verdict_goes_by(self, case):
        """Of every step that is drawn and of the whole window, each cause, to the nanosecond."""
        _, result, drawn = case
        by_name = {step.name: step for step in result.steps}
        for step in drawn.steps:
            assert [idle.device for idle in step.idle] == [each.device for each in result.devices]
            for idle in step.idle:
                whole = of_device(result.devices, idle.device)
                shares = by_cause(whole, result.window_s)
                assert (idle.whole_idle_ns, idle.whole_drained_ns) == shares
                assert idle.whole_window_ns == round(result.window_s * 1e9)
                if step.name:
                    own = by_name[step.name]
                    shares = by_cause(of_device(own.devices, idle.device), own.window_s)
                    assert (idle.idle_ns, idle.drained_ns) == shares
                    assert idle.window_ns == round(own.window_s * 1e9)

    def test_the_pieces_of_the_timeline_are_those_gaps(self, case):
        """Drawn one by one they add up to the same, cause by cause, and lie where nothing ran."""
        analysis, _, drawn = case
        for step in drawn.steps:
            begin, end = step.begins_ns, step.begins_ns + step.window_ns
            for device, idle in zip(analysis.devices, step.idle, strict=True):
                pieces = device.idle(analysis.causes, begin, end)
                assert pieces.total_ns() == idle.idle_ns
                assert (pieces.start_ns[1:] >= pieces.end_ns[:-1]).all()
                own = device.activities.select(
                    device.activities.end_ns > device.activities.start_ns
                )
                for start, stop in zip(own.start_ns.tolist(), own.end_ns.tolist(), strict=True):
                    first = np.searchsorted(pieces.end_ns, start, side="right")
                    assert first == len(pieces.end_ns) or pieces.start_ns[first] >= stop

    def test_drawn_spans_lie_in_the_window_and_are_not_too_many(self, case):
        _, _, drawn = case
        for step in drawn.steps:
            assert 0 < step.num_spans <= step.num_events or step.num_events == 0
            total = 0
            for shown in (*step.lanes, *step.strips):
                for row in shown.rows:
                    total += len(row)
                    assert list(row.start_ns) == sorted(row.start_ns)
                    assert all(start >= 0 for start in row.start_ns)
                    assert all(end <= step.window_ns for end in row.end_ns)
                    assert all(0 <= label < len(drawn.labels) for label in row.label)
            assert total <= 1.3 * anatomy.MAX_SPANS
            merged = any(
                count > 1 for shown in step.lanes for row in shown.rows for count in row.num_events
            )
            assert merged == (step.merged_below_ns > 0)
            assert step.num_events == sum(
                sum(row.num_events)
                for shown in step.lanes
                if shown.kind not in ("way", "idle", "communication", "copy")
                for row in shown.rows
            )

    def test_the_critical_way_covers_the_window_once(self, case):
        analysis, _, drawn = case
        for step in drawn.steps:
            assert bool(step.way_ns) == bool(analysis.devices)
            if step.way_ns:
                assert sum(step.way_ns.values()) == step.window_ns
                (row,) = lane(step, "way").rows
                assert (row.start_ns[0], row.end_ns[-1]) == (0, step.window_ns)
                assert row.start_ns[1:] == row.end_ns[:-1]

    def test_the_strip_of_a_gpu_is_the_verdicts_division_of_the_time(self, case):
        _, result, drawn = case
        by_name = {step.name: step for step in result.steps}
        for step in drawn.steps:
            for strip in step.strips:
                (row,) = strip.rows
                if step.merged_below_ns or any(count > 1 for count in row.num_events):
                    continue
                total = defaultdict(float)
                for kind, start, end in said(drawn, row):
                    total[kind] += end - start
                window = by_name[step.name] if step.name else result
                own = of_device(window.devices, strip.device)
                for kind, share in (
                    ("compute", own.compute_pct),
                    ("exposed communication", own.exposed_communication_pct),
                    ("exposed copy", own.exposed_copy_pct),
                ):
                    assert total[kind] == pytest.approx(share * window.window_s * 1e4, abs=1e-3)


def test_a_kernel_names_its_operator_and_the_line_of_code(recorded):
    path = recorded / "h100_launchbound_transformer/steps1-3.pt.trace.json.gz"
    _, _, drawn = looked_at(path)
    median = drawn.steps[0]
    labels = [drawn.labels[label] for label in lane(median, "stream").rows[0].label]
    assert {label.operator for label in labels} >= {"aten::addmm", "aten::native_layer_norm"}
    assert all(label.code.startswith("torch_prof.py(") for label in labels)
    frames = [drawn.labels[row.label[0]].name for row in lane(median, "code").rows]
    assert frames[0] == "torch_prof.py(114): <module>"


def test_the_median_and_the_slowest_step(recorded):
    path = recorded / "v100_torch19_resnet50_workers0.pt.trace.json.gz"
    _, result, drawn = looked_at(path)
    order = sorted(result.steps, key=lambda step: step.window_s)
    assert [(step.which, step.name) for step in drawn.steps] == [
        ("median", order[2].name),
        ("slowest", order[5].name),
    ]


# Small traces, every number worked out by hand. Times in microseconds.

ONE_STEP = [span("user_annotation", "ProfilerStep#1", 0, 200)]
CAUSES = [
    *ONE_STEP,
    span("user_annotation", "enumerate(DataLoader)#_SingleProcess.__next__", 0, 20),
    span("cpu_op", "aten::mm", 40, 60),
    span("cuda_runtime", "cudaLaunchKernel", 50, 54, correlation=1),
    span("cuda_runtime", "cudaStreamSynchronize", 60, 100, correlation=9),
    span("cuda_runtime", "cudaMalloc", 110, 115, correlation=8),
    span("cuda_runtime", "cudaLaunchKernel", 120, 126, correlation=2),
    span("cuda_runtime", "cudaLaunchKernel", 127, 129, correlation=3),
    kernel("first", 60, 90, 1, 50),
    kernel("second", 130, 150, 2, 50),
    kernel("third", 190, 195, 3, 50),
]


def test_every_gap_is_cut_at_its_causes(write):
    drawn, step = picture(write(CAUSES))
    assert step.which == "only"
    assert said(drawn, lane(step, "idle").rows[0]) == [
        ("input", 0, 20),
        ("host", 20, 50),
        ("launch", 50, 54),
        ("launch_latency", 54, 60),
        ("synchronize", 90, 100),
        ("host", 100, 110),
        ("call", 110, 115),
        ("host", 115, 120),
        ("launch", 120, 126),
        ("launch_latency", 126, 130),
        ("dependency", 150, 190),
        ("tail", 195, 200),
    ]
    waited = [drawn.labels[label] for label in lane(step, "idle").rows[0].label]
    assert [label.waits_for for label in waited] == [
        *["first"] * 4, *["second"] * 6, "third", "",
    ]  # fmt: skip
    assert {label.operator for label in waited if label.waits_for == "first"} == {"aten::mm"}
    (idle,) = step.idle
    assert idle.idle_ns == {
        "input": 20_000, "synchronize": 10_000, "launch": 10_000, "call": 5_000, "host": 45_000,
        "launch_latency": 10_000, "dependency": 40_000, "unknown": 0, "tail": 5_000,
    }  # fmt: skip
    assert idle.drained_ns == 36_000, "the gap that began while the host synchronised"


def test_the_way_goes_through_the_wait_of_the_host(write):
    """The step ends on the host, which launched nothing any more: it last waited for `first`."""
    drawn, step = picture(write(CAUSES))
    assert said(drawn, lane(step, "way").rows[0]) == [
        ("input", 0, 20),
        ("host", 20, 50),
        ("launch", 50, 54),
        ("launch_latency", 54, 60),
        ("compute", 60, 90),
        ("synchronize", 90, 100),
        ("host", 100, 110),
        ("call", 110, 115),
        ("host", 115, 120),
        ("launch", 120, 126),
        ("host", 126, 127),
        ("launch", 127, 129),
        ("host", 129, 200),
    ]
    assert said(drawn, lane(step, "stream").way) == [("host", 60, 90)]


QUEUED = [
    span("user_annotation", "ProfilerStep#1", 0, 50),
    span("cuda_runtime", "cudaLaunchKernel", 10, 14, correlation=1),
    span("cuda_runtime", "cudaLaunchKernel", 15, 19, correlation=2),
    span("cuda_runtime", "cudaLaunchKernel", 20, 24, correlation=3),
    kernel("first", 20, 60, 1, 50),
    kernel("ncclDevKernel_AllReduce", 105, 180, 3, 50, stream=20),
    kernel("second", 62, 100, 2, 50),
]


def test_the_way_follows_the_queue_and_crosses_streams(write):
    """The collective was launched long before it began: it waited for the other stream."""
    drawn, step = picture(write(QUEUED))
    assert said(drawn, lane(step, "way").rows[0]) == [
        ("host", 0, 10),
        ("launch", 10, 14),
        ("launch_latency", 14, 20),
        ("compute", 20, 60),
        ("launch_latency", 60, 62),
        ("compute", 62, 100),
        ("dependency", 100, 105),
        ("communication", 105, 180),
    ]
    assert said(drawn, lane(step, "communication").rows[0]) == [("exposed communication", 105, 180)]
    assert step.last_collective == "ncclDevKernel_AllReduce 1"
    assert step.last_collective_ns == 180_000


def test_without_a_launch_the_way_follows_the_times(write):
    events = [
        span("user_annotation", "ProfilerStep#1", 0, 50),
        span("cuda_runtime", "cudaLaunchKernel", 20, 24, correlation=3),
        kernel("older", 5, 30, 77, 50),
        kernel("new", 35, 90, 3, 50),
    ]
    drawn, step = picture(write(events))
    assert said(drawn, lane(step, "way").rows[0]) == [
        ("unknown", 0, 5),
        ("compute", 5, 30),
        ("launch_latency", 30, 35),
        ("compute", 35, 90),
    ]


def many(num_events, *, streams=1, steps=1):
    """Kernels of 3 us every 10 us, each with an operator and a launch."""
    events = []
    length = 10 * num_events
    for number in range(steps):
        begin = number * (length + 100)
        events.append(span("user_annotation", f"ProfilerStep#{number}", begin, begin + length))
        for at in range(num_events):
            now, correlation = begin + 10 * at, number * num_events + at + 1
            events += [
                span("cpu_op", "aten::add", now, now + 4),
                span("cuda_runtime", "cudaLaunchKernel", now + 1, now + 2, correlation=correlation),
                kernel(f"kernel{at % 7}", now + 3, now + 6, correlation, 50, stream=at % streams),
            ]
    return events


def test_what_cannot_be_seen_is_drawn_together_and_said(write):
    _, step = picture(write(many(6_700)))
    assert step.num_events == 3 * 6_700
    assert step.num_spans <= anatomy.MAX_SPANS
    assert step.merged_below_ns > 0
    (row,) = lane(step, "stream").rows
    assert sum(row.num_events) == 6_700
    assert sum(row.total_ns) == 6_700 * 3_000
    assert step.idle[0].idle_ns["host"] == 6_699 * 5_000 + 1_000


def test_few_events_are_drawn_one_by_one(write):
    _, step = picture(write(many(100)))
    assert step.merged_below_ns == 0
    assert step.num_spans == step.num_events == 300


def test_ten_thousand_streams_share_a_lane_and_it_is_said(write):
    _, step = picture(write(many(10_000, streams=10_000)))
    streams = [lane for lane in step.lanes if lane.kind == "stream"]
    assert len(streams) == anatomy.MAX_STREAMS + 1
    assert streams[-1].name == "9,988 more streams"
    assert "a lane of its own for 9,988 of 10,000 streams, which share one" in step.left_out
    assert sum(sum(row.num_events) for lane in streams for row in lane.rows) == 10_000


def test_a_trace_without_steps_is_drawn_whole(write):
    events = [event for event in CAUSES if "ProfilerStep" not in event["name"]]
    drawn, step = picture(write(events))
    assert (step.which, step.name) == ("whole", "")
    assert step.window_ns == 135_000, "from the first kernel to the end of the last"
    assert any("no steps" in note for note in drawn.notes)


def test_a_trace_without_a_gpu_has_the_lanes_of_the_host(write):
    events = [event for event in CAUSES if event["cat"] in ("user_annotation", "cpu_op")]
    drawn, step = picture(write(events))
    assert {lane.kind for lane in step.lanes} == {"input", "operators"}
    assert (step.way_ns, step.idle, step.strips) == ({}, (), ())
    assert any("no GPU activity" in note for note in drawn.notes)


def test_steps_without_work_of_the_gpu_are_not_the_median(write):
    events = many(20, steps=3)
    events.append(span("user_annotation", "ProfilerStep#9", 1000, 1001))
    drawn = pictures(write(events))
    assert "ProfilerStep#9" not in {step.name for step in drawn.steps}


def test_other_ranks_show_the_same_steps(write):
    first = write(many(20, steps=3), distributedInfo={"rank": 0, "world_size": 2})
    analysis = Analysis(read_trace(first))
    chosen = chosen_steps(anatomy_of(analysis, "rank 0"))
    assert chosen == ("ProfilerStep#0", "ProfilerStep#0"), "they are equally long"
    asked = anatomy.Chosen("ProfilerStep#2", "ProfilerStep#1")
    drawn = anatomy_of(analysis, "rank 1", asked)
    assert [step.name for step in drawn.steps] == ["ProfilerStep#2", "ProfilerStep#1"]
    missing = anatomy_of(analysis, "rank 1", anatomy.Chosen("ProfilerStep#7", "ProfilerStep#1"))
    assert [step.name for step in missing.steps] == ["ProfilerStep#0"]


def test_nothing_that_takes_time_is_no_picture(write):
    drawn = pictures(write([span("cpu_op", "aten::mm", 5, 5)]))
    assert drawn.steps == ()
    assert drawn.unavailable


def test_copies_that_block_are_synchronising_calls(write):
    events = [
        *ONE_STEP,
        span("cuda_runtime", "cudaMemcpyAsync", 10, 60, correlation=1),
        work("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 30, 50, correlation=1, bytes=4),
        span("cuda_runtime", "cudaMemcpyAsync", 70, 75, correlation=2),
        work("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 80, 90, correlation=2, bytes=4),
    ]
    drawn, step = picture(write(events))
    assert said(drawn, lane(step, "synchronize").rows[0]) == [("call", 10, 60)]
    assert said(drawn, lane(step, "call").rows[0]) == [("call", 70, 75)]
    assert [kind for kind, *_ in said(drawn, lane(step, "way").rows[0])] == [
        "host", "call", "copy", "call", "host", "call", "host",
    ]  # fmt: skip
