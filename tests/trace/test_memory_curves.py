"""Memory over a step: recorded traces against their own events, planted ones, broken ones."""

import gzip
import json

import numpy as np
import pytest
from batchadvisor.probes.trace import builder
from batchadvisor.probes.trace.memory_curves import CURVE_POINTS, memory_curves, thinned
from batchadvisor.probes.trace.metrics import Analysis
from batchadvisor.probes.trace.reader import read_trace
from batchadvisor.reports.builder.sections.profiled_memory import memory_charts, memory_table
from batchadvisor.reports.builder.traces import trace_page
from batchadvisor.session.analyze import analyze, write_page

from .test_metrics import span

MIB = 1 << 20


def memory(at, num_bytes, total, *, reserved=64 * MIB, device=0, tid=1, **fields):
    args = {
        "Device Type": 0 if device is None else 1, "Device Id": -1 if device is None else device,
        "Addr": 4096, "Bytes": num_bytes, "Total Allocated": total, "Total Reserved": reserved,
    }  # fmt: skip
    event = {
        "ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 100,
        "tid": tid, "ts": at, "args": args,
    }  # fmt: skip
    return event | fields


STEPS = [
    span("user_annotation", "ProfilerStep#1", 0, 100),
    span("user_annotation", "ProfilerStep#2", 100, 300),
    span("user_annotation", "ProfilerStep#3", 300, 600),
    span("cpu_op", "aten::linear", 120, 220),
    span("cpu_op", "aten::mm", 140, 200),
    span("cpu_op", "aten::empty", 145, 155),
    span("cpu_op", "aten::elsewhere", 110, 290, tid=2),
]
PLANTED = [
    memory(50, 10 * MIB, 10 * MIB),
    memory(130, 2 * MIB, 12 * MIB),
    memory(160, 20 * MIB, 32 * MIB, reserved=96 * MIB),
    memory(250, -25 * MIB, 7 * MIB, reserved=96 * MIB),
    memory(400, 50 * MIB, 57 * MIB, reserved=128 * MIB),
]


def curves_of(write, events):
    return memory_curves(Analysis(read_trace(write(events))))


def only(write, events):
    (curve,) = curves_of(write, events)
    return curve


class TestPlanted:
    def test_the_peak_of_the_median_step_and_its_operator(self, write):
        curve = only(write, STEPS + PLANTED)
        assert (curve.step, curve.step_ns, curve.device) == ("ProfilerStep#2", 200_000, 0)
        assert curve.time_ns == (0, 30_000, 60_000, 150_000)
        assert curve.allocated_bytes == (10 * MIB, 12 * MIB, 32 * MIB, 7 * MIB)
        assert curve.reserved_bytes == (64 * MIB, 64 * MIB, 96 * MIB, 96 * MIB)
        assert (curve.peak_bytes, curve.peak_ns) == (32 * MIB, 60_000)
        assert (curve.peak_operator, curve.peak_within) == ("aten::mm", "aten::linear")
        assert curve.peak_reserved_bytes == 96 * MIB
        assert (curve.num_events, curve.relative, curve.notes) == (3, False, ())

    def test_the_most_may_be_what_the_step_began_with(self, write):
        curve = only(write, [*STEPS, memory(50, 9, 90), memory(150, -40, 50)])
        assert (curve.peak_bytes, curve.peak_ns, curve.peak_operator) == (90, 0, "")

    def test_what_held_before_the_first_event_follows_from_it(self, write):
        curve = only(write, [*STEPS, memory(150, 40, 50)])
        assert curve.allocated_bytes == (10, 50)
        assert curve.reserved_bytes == (None, 64 * MIB)

    def test_outside_of_operators(self, write):
        assert only(write, [*STEPS, memory(230, 40, 50)]).peak_operator == ""

    def test_gpus_and_the_host_stand_apart(self, write):
        events = [*PLANTED, memory(170, 5, 5, device=1), memory(180, 3, 3, device=None, reserved=0)]
        curves = curves_of(write, STEPS + events)
        assert [curve.device for curve in curves] == [0, 1, None]
        assert [curve.peak_bytes for curve in curves] == [32 * MIB, 5, 3]
        assert curves[2].reserved_bytes == ()
        assert curves[2].peak_reserved_bytes is None
        assert "before the profiler began" in curves[2].notes[-1]

    def test_the_host_s_range_counts_though_the_gpu_lags(self, write):
        """Kernels of a step may run while the host allocates for the next one."""
        call = span("cuda_runtime", "cudaLaunchKernel", 150, 151, correlation=1)
        late = span("kernel", "k", 310, 420, tid=7, correlation=1, device=0, stream=7) | {"pid": 0}
        curve = only(write, [*STEPS[:2], *STEPS[3:], call, late, *PLANTED])
        assert (curve.step_ns, curve.peak_bytes) == (200_000, 32 * MIB)

    def test_without_steps_it_is_the_whole_recording(self, write):
        curve = only(write, STEPS[3:] + PLANTED)
        assert (curve.step, curve.step_ns, curve.peak_bytes) == ("", 350_000, 57 * MIB)

    def test_changes_alone_are_added_up(self, write):
        """Torch 1.8 and 1.9 write no totals, no category, and a thread as number and as text."""
        events = [memory(at, size, 0) for at, size in ((50, 100), (150, 40), (210, -200), (250, 7))]
        for event in events:
            del event["cat"]
            event["args"] = {
                key: event["args"][key] for key in ("Device Type", "Device Id", "Bytes")
            }
        operators = [span("Operator", "aten::mm", 140, 200, tid="1")]
        curve = only(write, STEPS[:3] + operators + events)
        assert curve.relative
        assert curve.allocated_bytes == (100, 140, -60, -53)
        assert (curve.peak_bytes, curve.peak_operator) == (140, "aten::mm")
        (chart,) = memory_charts([curve], "m")
        assert chart.y_low < 0
        assert "0 is what was allocated as the recording began" in " ".join(chart.notes)
        assert "reserved is unavailable" in " ".join(chart.notes)

    def test_many_events_keep_their_peak_and_their_low(self, write):
        chance = np.random.default_rng(7)
        totals = chance.integers(10**6, 10**7, 20_000)
        changes = np.diff(totals, prepend=totals[0])
        events = [
            memory(100 + number / 100, int(change), int(total))
            for number, (change, total) in enumerate(zip(changes, totals, strict=True))
        ]
        curve = only(write, STEPS + events)
        assert len(curve.time_ns) <= CURVE_POINTS + 1
        assert curve.num_events == 20_000
        assert max(curve.allocated_bytes) == curve.peak_bytes == totals.max()
        assert min(curve.allocated_bytes) == totals.min()
        assert curve.allocated_bytes[-1] == totals[-1]
        assert curve.peak_ns == 10 * int(totals.argmax())
        assert "least and the most" in " ".join(memory_charts([curve], "m")[0].notes)


def test_each_piece_keeps_its_least_and_its_most():
    chance = np.random.default_rng(3)
    time = np.sort(chance.integers(0, 10**9, 30_000))
    values, others = chance.integers(0, 10**9, (2, 30_000))
    rows = thinned(time, values, others)
    assert len(rows) <= CURVE_POINTS
    pieces = (time - time[0]) * (CURVE_POINTS // 5) // (time[-1] - time[0] + 1)
    for piece in np.unique(pieces).tolist():
        own = pieces == piece
        kept = rows[pieces[rows] == piece]
        for column in (values, others):
            assert column[kept].max() == column[own].max()
            assert column[kept].min() == column[own].min()


class TestBroken:
    @pytest.mark.parametrize(
        "change",
        [
            {"args": {}},
            {"args": 3},
            {"args": None},
            {"ts": "soon"},
            {"ts": None},
            {"args": {"Device Type": 1, "Device Id": 0, "Bytes": "many"}},
            *(
                {"args": {"Device Type": 1, "Device Id": 0, "Bytes": 5, "Total Allocated": 5} | odd}
                for odd in (
                    {"Total Allocated": -5}, {"Device Id": -1}, {"Device Id": 10**30},
                    {"Device Type": 9}, {"Device Type": "GPU"},
                )
            ),
        ],
    )  # fmt: skip
    def test_what_cannot_be_is_left_out_and_counted(self, write, change):
        odd = memory(155, 2**40, 2**40) | change
        curve = only(write, [*STEPS, *PLANTED, odd])
        assert curve.peak_bytes == 32 * MIB
        assert curve.notes == ("1 event of memory without a usable time, device or size left out",)

    def test_no_reserved_bytes(self, write):
        odd = {"Total Reserved": -7}
        curve = only(write, STEPS + [event | {"args": event["args"] | odd} for event in PLANTED])
        assert (curve.reserved_bytes, curve.peak_reserved_bytes) == ((), None)

    def test_an_event_without_a_total_among_others(self, write):
        odd = memory(155, 5, 5)
        del odd["args"]["Total Allocated"]
        curve = only(write, [*STEPS, *PLANTED, odd])
        assert curve.peak_bytes == 32 * MIB
        assert curve.notes[0] == "1 event of memory without a total left out"

    def test_out_of_order_or_with_a_change_missing(self, write):
        curve = only(write, STEPS + PLANTED[::-1])
        assert curve.allocated_bytes == only(write, STEPS + PLANTED).allocated_bytes
        assert curve.notes == ("4 events of memory not in order of time and sorted",)
        curve = only(write, STEPS + PLANTED[:2] + PLANTED[3:])
        assert curve.notes == ("at 1 event the total does not follow from the one before it",)

    def test_more_than_are_kept(self, write, monkeypatch):
        monkeypatch.setattr(builder, "MOST_MEMORY_EVENTS", 3)
        trace = read_trace(write(STEPS + PLANTED))
        assert (len(trace.memory), trace.memory.num_more) == (3, 2)
        (curve,) = memory_curves(Analysis(trace))
        assert curve.notes[0].endswith("2 more are not")

    @pytest.mark.parametrize("other", [{"ph": "X", "dur": 1}, {"name": "[OutOfMemory]"}])
    def test_other_events_are_none(self, write, other):
        assert curves_of(write, [*STEPS, memory(150, 5, 5) | other]) == ()

    def test_all_at_one_moment_without_steps(self, write):
        assert curves_of(write, [STEPS[3], memory(150, 5, 5), memory(150, 5, 10)]) == ()


class TestRecorded:
    @pytest.mark.parametrize(
        ("name", "step", "operator"),
        [
            ("h100_torch26_qwen05b_bs16_infer.json.gz", "ProfilerStep#6", "aten::mul"),
            ("h100_launchbound_transformer/steps1-3.pt.trace.json.gz", "ProfilerStep#2",
             "aten::clamp_min"),
            ("h100_launchbound_transformer/steps6-8.pt.trace.json.gz", "ProfilerStep#7",
             "aten::clamp_min"),
            ("small/cpu_torch213_dataloader.pt.trace.json.gz", "ProfilerStep#3", "aten::sum"),
            ("v100_torch19_resnet50_workers0.pt.trace.json.gz", "ProfilerStep#6", "aten::empty"),
            ("v100_torch19_resnet50_workers4.pt.trace.json.gz", "ProfilerStep#6", "aten::empty"),
        ],
    )  # fmt: skip
    def test_against_the_events_themselves(self, recorded, name, step, operator):
        document = json.loads(gzip.decompress((recorded / name).read_bytes()))
        events = [event for event in document["traceEvents"] if event.get("name") == "[memory]"]
        (mark,) = [
            event
            for event in document["traceEvents"]
            if event.get("name") == step and event.get("cat") != "gpu_user_annotation"
        ]
        start, end = float(mark["ts"]), float(mark["ts"]) + float(mark["dur"])
        curves = memory_curves(Analysis(read_trace(recorded / name)))
        assert {curve.step for curve in curves} == {step}
        assert curves[0].peak_operator == operator
        for curve in curves:
            number, kind = (-1, 0) if curve.device is None else (curve.device, 1)
            own = [
                event
                for event in events
                if (event["args"]["Device Type"], event["args"]["Device Id"]) == (kind, number)
            ]
            totals, running = [], 0
            for event in own:
                running += event["args"]["Bytes"]
                totals.append(event["args"].get("Total Allocated", running))
            inside = [
                (total, float(event["ts"]))
                for total, event in zip(totals, own, strict=True)
                if start <= float(event["ts"]) <= end
            ]
            assert curve.num_events == len(inside)
            assert curve.peak_bytes == max(total for total, _ in inside)
            at = next(at for total, at in inside if total == curve.peak_bytes)
            assert curve.peak_ns == pytest.approx((at - start) * 1000, abs=300)
            assert min(curve.allocated_bytes) <= min(total for total, _ in inside)
            assert not [note for note in curve.notes if "before the profiler" not in note]

    def test_the_page_shows_it_and_says_where_it_is_from(self, recorded, tmp_path):
        path = recorded / "h100_torch26_qwen05b_bs16_infer.json.gz"
        analysis = write_page([path], tmp_path / "page.html")
        page = (tmp_path / "page.html").read_text()
        assert 'data-chart="t-memory_0_0"' in page
        assert "Measured by the profiler over ProfilerStep#6" in page
        assert "Peak 1.95 GiB at 98% of ProfilerStep#6, inside aten::mul." in page
        (chart,) = [chart for chart in trace_page(analysis).charts if "memory" in chart.key]
        assert [line.key for line in chart.series] == ["allocated", "reserved"]
        allocated = [value for value in chart.series[0].values if value is not None]
        assert max(allocated) == pytest.approx(2088508416 / 2**30, rel=1e-5)

    def test_nothing_is_shown_where_nothing_was_recorded(self, recorded):
        analysis = analyze([recorded / "a100_ddp2_resnet_nccl_rank0.json.gz"])
        assert analysis.traces[0].profile.memory == ()
        page = trace_page(analysis)
        assert not [chart for chart in page.charts if "memory" in chart.key]
        assert not [table for table in page.tables if "Memory" in table.title]


def test_each_gpu_of_a_trace_has_its_own(write):
    work = [
        span("kernel", "k", 150, 160, tid=7, device=device, stream=7) | {"pid": device}
        for device in (0, 1)
    ]
    events = [*STEPS, *PLANTED, memory(170, 5, 5, device=1), *work]
    reports = analyze([write(events)]).traces
    assert [[curve.device for curve in report.profile.memory] for report in reports] == [[0], [1]]


def test_a_chart_holds_a_value_until_the_next_change(write):
    (chart,) = memory_charts([only(write, STEPS + PLANTED)], "m")
    line = list(zip(chart.x, chart.series[0].values, strict=True))
    assert chart.unit == "MiB"
    assert [value for at, value in line if at == 30.0] == [12.0, 32.0]
    assert [value for at, value in line if 30.0 < at < 75.0] == [32.0] * 4
    assert line[-1] == (100.0, 7.0)
    assert [(mark.value, mark.label) for mark in chart.marks] == [(30.0, "peak")]
    texts = [text for text in chart.series[0].texts if text]
    assert texts[0] == "10 MiB"


def test_names_from_a_trace_do_nothing(write, tmp_path):
    events = [*STEPS, span("cpu_op", "</script><b>\x1b[31m", 240, 260), *PLANTED]
    events.append(memory(245, 100 * MIB, 107 * MIB))
    write_page([write(events)], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "<b>" not in page
    assert "\x1b" not in page
    table = memory_table([("", only(write, events))])
    assert table.rows[0].cells[2:6] == ("10 MiB", "7 MiB", "107 MiB", "72%")
