"""What stands on the tab's pages, as data: the summary, traces of others, runs side by side."""

import html
import itertools
from pathlib import Path

import pytest
from batchadvisor.features.board import html as board
from batchadvisor.features.board.html.pages import show_traces
from batchadvisor.features.board.page import compare_page, compare_shown
from batchadvisor.features.board.records import Entry, Shown
from batchadvisor.records import Counters, IdleShares, Profile
from batchadvisor.reports.blocks import Document, Section
from batchadvisor.reports.builder.summary import Measured, summary
from batchadvisor.reports.builder.traces import trace_page
from batchadvisor.reports.html.svg import shapes
from batchadvisor.reports.markdown.document import render as markdown
from batchadvisor.session.analyze import analyze, analyze_for_page
from msgspec.structs import replace

from ..analyze import traces
from ..reports import samples
from ..reports.golden import agrees

ENTRY = Entry(key="k", name="n", kind="traces", version="1", modified_s=0.0, traces=())


def rows_of(table):
    return {row.cells[0]: row.cells[1:-1] for row in table.rows}


@pytest.fixture(scope="module")
def job(recorded):
    """Two ranks of a job on eight H100s: its analysis and its page."""
    analysis = analyze([recorded / "h100_ddp8_nanogpt_compile"])
    return analysis, trace_page(analysis)


class TestSummary:
    def test_whole_tables(self):
        """Values stand under their column, rows without any are left out, reasons are said once."""
        idle = IdleShares(
            total_pct=10.2, input_pct=4.4, synchronize_pct=0, launch_pct=1, call_pct=1, host_pct=2,
            launch_latency_pct=1, dependency_pct=0, unknown_pct=0.5, tail_pct=0.3,
        )  # fmt: skip
        lacks = Profile(
            operators_pct=50.0,
            unavailable={"busy_pct": "no GPU work", "occupancy_pct": "no GPU work"},
            losses="the trace is damaged: 3 events",
        )
        refused = {"sm_active_pct": "the driver refuses GPM"}
        columns = {
            "a profile and counters": [
                Measured(name="8", profile=Profile(busy_pct=89.8, occupancy_pct=41.2, idle=idle)),
                Measured(name="16", counters=Counters(utilization_pct=97.0, power_w=300.4)),
            ],
            "tensor cores are a bound and a doubt": [
                Measured(
                    name="8",
                    profile=Profile(tensor_core_pct=53.0, tensor_core_unknown_pct=40.0),
                )
            ],
            "why a value is missing": [
                Measured(name="8", profile=lacks), Measured(name="9", profile=lacks),
            ],
            "why a counter is missing": [
                Measured(name="8", counters=Counters(power_w=300.0, unavailable=refused)),
            ],
        }  # fmt: skip
        sections = tuple(
            Section(title=what, blocks=(summary(measured, what),))
            for what, measured in columns.items()
        )
        agrees("summary.md", markdown(Document(title="", headline="", blocks=sections)))

    def test_nothing_known(self):
        assert summary([Measured(name="8", profile=Profile())], "") is None
        assert summary([], "") is None


class TestTraces:
    def test_one_trace_says_its_headline_once_and_names_the_parts_of_its_bar(self):
        trace = Path(__file__).parents[1] / "data/h100/imagenet_256.pt.trace.json.gz"
        page = trace_page(analyze([trace]))
        entry = Entry(key="k", kind="traces", name="one", version="", modified_s=0.0)
        text = html.unescape(show_traces(entry, page, viewer=False))
        said = page.limits[0][1].message
        assert page.headline.endswith(said)
        assert text.count(said) == 1
        (chart,) = page.charts
        names = [shape for shape in shapes(chart) if shape.text.startswith("idle: the loader ")]
        (name,) = names
        assert name.text == "idle: the loader 65%"
        places = [
            float(shape.attributes["y"])
            for shape in shapes(chart)
            if any(shape.text.startswith(f"{line.label} ") for line in chart.series)
        ]
        assert len(places) == len(chart.series)
        assert all(below - above >= 14 for below, above in itertools.pairwise(places))
        assert min(places) > 10

    def test_the_numbers_are_those_of_the_analysis(self, job):
        analysis, page = job
        table = next(table for table in page.tables if table.title == "GPU summary")
        rows = rows_of(table)
        for title, field in (
            ("GPU busy", "busy_pct"),
            ("communication", "communication_pct"),
            ("exposed communication", "exposed_communication_pct"),
            ("occupancy", "occupancy_pct"),
        ):
            values = [getattr(trace.profile, field) for trace in analysis.traces]
            assert rows[title] == tuple(f"{value:.0f}%" for value in values)
        # The plugin that this tab replaces says 0 here.
        assert rows["communication"] == ("26%", "30%")

    def test_ranks_of_a_job_are_judged_together_and_no_change(self, job):
        _, page = job
        ((whose, limit),) = page.limits
        assert (whose, limit.limit) == ("2 ranks of one job", "communication")
        titles = [table.title for table in page.tables]
        assert "Collectives, rank against rank" in titles
        assert "Kernels of rank0" in titles
        assert page.grown == ()
        (chart,) = page.charts
        for at in range(len(chart.x)):
            assert sum(series.values[at] for series in chart.series) == pytest.approx(100, abs=1)

    def test_a_trace_of_a_cpu_alone(self, recorded):
        path = recorded / "small/cpu_torch213_dataloader.pt.trace.json.gz"
        page = trace_page(analyze([path]))
        assert page.headline.startswith("input: ")
        table = next(table for table in page.tables if table.title == "CPU summary")
        # 88 % by hand; the plugin that this tab replaces says 0.
        assert rows_of(table)["waiting for input"] == ("88%",)
        assert any(table.title.startswith("CPU operators of") for table in page.tables)


class TestCompare:
    def test_a_clear_difference_is_said_with_its_factor(self):
        gpu, cpu = samples.gpu(), samples.cpu()
        page = compare_page([("slow", *cpu), ("fast", *gpu), ("none", *samples.nothing_fits())])
        rates = [report.recommended.samples_per_s.median for _, report in (gpu, cpu)]
        assert page.headline.startswith("fast is the fastest")
        assert f"x{rates[0] / rates[1]:.2f}" in page.headline
        assert any("Different devices" in note for note in page.notes)
        assert page.table.rows[2].cells[1] == "none"
        assert all(not chart.marks for chart in page.charts), "a limit is one device's"

    def test_like_for_like_stands_beside_the_best_of_each(self):
        """128 against 64: one size that both timed says what is left without the other size."""
        page = compare_page([("all", *samples.cpu()), ("less", *samples.interrupted()),
                             ("none", *samples.nothing_fits())])  # fmt: skip
        assert page.headline == (
            "all is the fastest at its recommended size: x1.08 the samples per second of less "
            "(128 against 64); like for like, 64 in all: cannot tell"
        )
        titles = [column.title for column in page.table.columns]
        cells = [row.cells[titles.index("at 64")] for row in page.table.rows]
        assert cells == ["1230 ±10", "1230 ±10", "-"]

    GPU, ADVICE = samples.gpu()
    FEW = replace(ADVICE.recommended.samples_per_s, num_samples=2)
    TOO_FEW = replace(ADVICE, recommended=replace(ADVICE.recommended, samples_per_s=FEW))
    OTHER = replace(GPU, script=replace(GPU.script, path="another.py"))

    @pytest.mark.parametrize(
        ("first", "second", "headline", "notes"),
        [
            ((GPU, ADVICE), (GPU, ADVICE), "Cannot tell whether a or b is faster", []),
            (samples.cpu(), (GPU, TOO_FEW), "Cannot tell", ["Different devices"]),
            ((GPU, ADVICE), (OTHER, ADVICE), "Not comparable: different", ["Different scripts"]),
            (samples.cpu(), samples.nothing_fits(), "Fewer than two", ["Different devices"]),
        ],
        ids=["intervals overlap", "too few values", "different scripts", "one speed alone"],
    )
    def test_what_cannot_be_ranked(self, first, second, headline, notes):
        page = compare_page([("a", *first), ("b", *second)])
        assert page.headline.startswith(headline)
        assert [note.partition(":")[0] for note in page.notes] == notes
        assert len(page.table.rows) == 2

    def test_a_script_of_the_same_text_is_the_same_wherever_it_was(self):
        moved = replace(self.GPU, script=replace(self.GPU.script, path="moved.py", digest="d"))
        kept = replace(self.GPU, script=replace(self.GPU.script, digest="d"))
        page = compare_page([("a", kept, self.ADVICE), ("b", moved, self.ADVICE)])
        assert page.headline.startswith("Cannot tell whether a or b")
        assert not page.notes

    def test_an_entry_without_a_record_is_called_what_it_is(self):
        entries = [replace(ENTRY, name=kind, kind=kind) for kind in ("traces", "devices")]
        traces_left, devices_left = compare_shown([Shown(entry=each) for each in entries]).unread
        assert traces_left.endswith("these are traces, not a run")
        assert "a run on several devices" in devices_left

    def test_a_range_beside_a_value_stands_in_parentheses(self):
        skewed = replace(self.ADVICE.recommended.samples_per_s, low=3000.0, high=9000.0)
        wide = replace(self.ADVICE, recommended=replace(self.ADVICE.recommended,
                                                        samples_per_s=skewed))  # fmt: skip
        assert skewed.is_skewed
        (row,) = compare_page([("a", self.GPU, wide)]).table.rows
        assert row.cells[2].endswith(" (3000–9000)")  # noqa: RUF001  a range


class TestKernels:
    def test_two_traces_side_by_side(self, recorded):
        """ResNet-50 with 0 and with 4 workers: the same work on the GPU."""
        files = sorted(recorded.glob("v100_torch19_resnet50_workers*"))
        page = trace_page(analyze(files))
        by_operator, by_kernel = page.grown
        assert "by operator" in by_operator.title
        assert "98.6 ms → 99.1 ms a step (x1.01)." in by_kernel.notes[0]
        assert "grows" not in {column.title for column in by_kernel.columns}, "no size is known"

    def test_the_folders_of_a_run_name_the_sizes(self, tmp_path):
        for size in (16, 4, 8):
            events = traces.training(kernel_us=float(size))
            folder = tmp_path / f"traces/batch_size={size:04d}"
            folder.mkdir(parents=True)
            traces.save(folder / "w0t0.1.pt.trace.json", events)
        page = trace_page(analyze([tmp_path]))
        titles = [table.title for table in page.grown]
        assert titles == [
            "GPU time by kernel: batch_size=0004 → batch_size=0008",
            "GPU time by kernel: batch_size=0008 → batch_size=0016",
        ]
        (row,) = page.grown[0].rows
        assert row.cells[4:6] == ("x2.00", "with the batch")

    def test_of_many_ranks_the_first_and_the_last_one_in_are_listed(self, tmp_path):
        """64 ranks, for the last of which all others wait."""
        for rank in range(64):
            duration_us = 10.0 if rank == 63 else 1000.0
            document = traces.rank_of(rank, [duration_us], world_size=64)
            traces.save(tmp_path / f"rank{rank:02d}.json", document)
        analysis = analyze([tmp_path])
        assert analysis.collectives.straggler == 63
        page = trace_page(analysis)
        titles = [table.title for table in page.tables if table.title.startswith("Kernels of")]
        assert len(titles) == 8
        assert titles[-1] == "Kernels of rank63"
        assert any("those of 56 other traces are left out" in note for note in page.notes)


class TestBadTraces:
    """What a page leaves out it says, whatever the trace."""

    @pytest.mark.parametrize(
        ("name", "said"),
        [
            ("small/a100_alexnet_cuda_sync_no_steps.json.gz", "the trace has no steps"),
            ("small/cpu_torch213_dataloader.pt.trace.json.gz", "the trace holds no GPU activity"),
            ("small/malformed_truncated_json.json.gz", "the trace is damaged"),
            ("small/malformed_truncated_gzip.json.gz", "the trace is damaged"),
            ("small/malformed_torch213_unescaped_quotes.json", "mended"),
            ("small/a100_triton_bogus_step_dur.json.gz", "one step"),
        ],
    )
    def test_recorded(self, recorded, name, said):
        page = trace_page(analyze_for_page([recorded / name])[0])
        assert any(said in note for note in page.notes), page.notes
        text = board.show_traces(ENTRY, page, viewer=False)
        listed = [table for table in page.tables if table.title.startswith(("Kernels", "CPU op"))]
        assert listed
        for table in listed:
            assert table.notes[0].startswith(
                "Of the whole window" if said == "the trace has no steps" else "Of "
            )
            assert html.escape(table.title) in text

    def test_stacks_make_flame_graphs_of_the_host(self, recorded):
        path = recorded / "small/malformed_truncated_json.json.gz"
        page = trace_page(analyze_for_page([path])[0])
        ((name, flames),) = page.flames
        assert name in page.tables[0].rows[0].cells[0]
        assert [flame.of for flame in flames] == ["host"]
        assert trace_page(analyze([path])).flames == (), "only where it is asked for"

    def test_a_job_without_a_verdict_on_the_gpu_has_operators(self, tmp_path):
        """Launches whose kernels were not recorded: nothing is said of kernels."""
        events = traces.training(launched=True)
        events = [event for event in events if event["cat"] != "kernel"]
        events.append(traces.event("cpu_op", "aten::mm", 2, 50))
        page = trace_page(analyze([traces.save(tmp_path / "a.json", events)]))
        titles = [table.title for table in page.tables]
        assert "CPU operators of a" in titles
        assert not any(title.startswith("Kernels") for title in titles)

    def test_why_no_occupancy_is_known(self, recorded):
        path = recorded / "small/mi250_rocm62_minitoy_train.json.gz"
        page = trace_page(analyze([path]))
        table = next(table for table in page.tables if table.title.startswith("Kernels"))
        assert "occupancy" not in {column.title for column in table.columns}
        (note,) = (note for note in table.notes if note.startswith("Occupancy is not known"))
        assert "no NVIDIA GPU" in note
