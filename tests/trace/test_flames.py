"""Flame graphs and stacks: planted ones, recorded ones, and speedscope's rules."""

import json

import pytest
from batchadvisor.probes.trace import flames
from batchadvisor.probes.trace.metrics import Analysis
from batchadvisor.probes.trace.reader import read_trace
from batchadvisor.reports.data import speedscope
from batchadvisor.reports.html import flame as drawing

from .test_launchers import FORWARD, PLANTED, frame
from .test_metrics import kernel, span


def analysed(write, events):
    return Analysis(read_trace(write(events)))


def by_path(graph):
    """Seconds of each stack, in microseconds."""
    around: list[str] = []
    found = {}
    spans = sorted(graph.blocks, key=lambda block: (block.start_s, block.depth, -block.total_s))
    for block in spans:
        del around[block.depth :]
        around.append(graph.frames[block.frame].name)
        found[tuple(around)] = round(1e6 * block.total_s, 3)
    return found


class TestMerged:
    def test_the_host(self, write):
        host, _ = flames.flames_of(analysed(write, PLANTED))
        paths = by_path(host)
        main = ("thread 1", "train.py(40): main")
        assert paths[main] == 100
        assert paths[(*main, "Linear")] == 35
        # torch's own frame between the module and its `forward` is not there, its time is.
        assert paths[(*main, "Linear", FORWARD)] == 31
        builtin = (*main, "Linear", FORWARD, "<built-in method matmul of type object>")
        assert paths[(*builtin, "aten::linear", "aten::addmm", "cudaLaunchKernel")] == 2
        assert paths[("thread 2",)] == 20
        assert host.total_s == pytest.approx(120e-6)
        assert host.num_steps == 1

    def test_the_gpu_by_what_launched_its_work(self, write):
        _, gpu = flames.flames_of(analysed(write, PLANTED))
        paths = by_path(gpu)
        forward = ("train.py(40): main", "Linear", FORWARD)
        assert paths[(flames.UNKNOWN_LAUNCH, "orphan")] == 1
        assert paths[(*forward, "elementwise")] == 4
        engine = "autograd::engine::evaluate_function: AddmmBackward0"
        builtin = "<built-in method matmul of type object>"
        back = (flames.BACKWARD_PASS, engine, "AddmmBackward0", "aten::mm", "gemm")
        assert paths[(*forward, builtin, *back)] == 20
        assert paths[(*forward, builtin, "aten::linear", "aten::addmm", "gemm")] == 10
        assert paths[forward] == 34
        assert gpu.total_s == pytest.approx(35e-6)

    def test_blocks_lie_inside_those_around_them(self, recorded):
        trace = read_trace(recorded / "h100_torch26_qwen05b_bs16_infer.json.gz")
        for graph in flames.flames_of(Analysis(trace)):
            reach = {}
            for block in sorted(graph.blocks, key=lambda block: (block.depth, block.start_s)):
                end = block.start_s + block.total_s
                assert end <= graph.total_s * (1 + 1e-9)
                assert block.start_s >= reach.get(block.depth, 0.0) - 1e-12
                reach[block.depth] = end
                if block.depth:
                    assert any(
                        other.depth == block.depth - 1
                        and other.start_s <= block.start_s + 1e-12
                        and end <= other.start_s + other.total_s + 1e-12
                        for other in graph.blocks
                    )
                assert block.total_s >= graph.smallest * graph.total_s * (1 - 1e-9)

    def test_layers_of_one_kind_are_one(self, recorded):
        trace = read_trace(recorded / "h100_torch26_qwen05b_bs16_infer.json.gz")
        host, gpu = flames.flames_of(Analysis(trace))
        for graph in (host, gpu):
            names = [graph.frames[block.frame].name for block in graph.blocks]
            assert names.count("Qwen2DecoderLayer") == 1
        (layer,) = (b for b in gpu.blocks if gpu.frames[b.frame].name == "Qwen2DecoderLayer")
        # What was launched while a layer's call was open, without any nesting.
        python, calls = trace.python, trace.launches
        layers = [
            row
            for row, name in enumerate(python.name.tolist())
            if "Qwen2DecoderLayer" in trace.python_names[name]
        ]
        launched = {
            int(calls.correlation[row])
            for start, end in zip(
                python.start_ns[layers].tolist(), python.end_ns[layers].tolist(), strict=True
            )
            for row in ((calls.start_ns >= start) & (calls.start_ns < end)).nonzero()[0]
        }
        rows = [row for row, n in enumerate(trace.gpu.correlation.tolist()) if n in launched]
        total = int((trace.gpu.end_ns - trace.gpu.start_ns)[rows].sum())
        assert len(layers) == 24
        assert layer.total_s == pytest.approx(total / 1e9, rel=1e-6)

    def test_threads_that_do_nothing_are_said(self, write):
        events = [*PLANTED, frame("tqdm/_monitor.py(60): run", 0, 100, tid=9)]
        host, _ = flames.flames_of(analysed(write, events))
        assert not any("tqdm" in frame.name for frame in host.frames)
        assert host.left_out == ("1 thread of Python that ran no operator and named no range",)

    def test_many_small_blocks_are_counted(self, write):
        events = [span("cpu_op", f"op{n}", 10 * n, 10 * n + 9) for n in range(1000)]
        (host,) = flames.flames_of(analysed(write, events))
        assert len(host.blocks) < 10
        assert host.num_left_out == 1001 - len(host.blocks)

    def test_nothing_to_show(self, write):
        assert flames.flames_of(analysed(write, [])) == ()

    def test_hostile_names_are_only_text(self, write):
        events = [span("cpu_op", "</svg><script>alert(1)</script>", 0, 10)]
        (host,) = flames.flames_of(analysed(write, events))
        _, shapes = drawing.picture(host)
        assert any("<script>" in shape.title for shape in shapes), "escaped by the template"


def check_speedscope(text):
    """The rules of the file format; gives the document."""
    document = json.loads(text)
    assert document["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    frames = document["shared"]["frames"]
    for one in frames:
        assert isinstance(one["name"], str)
        assert isinstance(one.get("line", 1), int)
    for profile in document["profiles"]:
        assert profile["unit"] == "microseconds"
        assert profile["startValue"] <= profile["endValue"]
        if profile["type"] == "sampled":
            assert len(profile["samples"]) == len(profile["weights"])
            assert all(0 <= f < len(frames) for stack in profile["samples"] for f in stack)
            assert all(weight >= 0 for weight in profile["weights"])
            assert sum(profile["weights"]) == pytest.approx(profile["endValue"], abs=1e-2)
        else:
            assert profile["type"] == "evented"
            open_, last = [], profile["startValue"]
            for event in profile["events"]:
                assert last <= event["at"] <= profile["endValue"]
                last = event["at"]
                if event["type"] == "O":
                    assert 0 <= event["frame"] < len(frames)
                    open_.append(event["frame"])
                else:
                    assert event["type"] == "C"
                    assert open_.pop() == event["frame"], "the innermost one closes first"
            assert not open_, "all that opens closes"
    assert 0 <= document["activeProfileIndex"] < len(document["profiles"])
    return document


def exported(analysis):
    return check_speedscope(speedscope.render(flames.stacks_of(analysis), "x"))


class TestSpeedscope:
    def test_planted(self, write):
        document = exported(analysed(write, PLANTED))
        host, engine, gpu = document["profiles"]
        assert (host["name"], engine["name"]) == ("thread 1", "thread 2")
        names = [one["name"] for one in document["shared"]["frames"]]
        opened = [names[event["frame"]] for event in host["events"] if event["type"] == "O"]
        assert opened[:2] == ["main", "nn.Module: Linear_3"], "nothing is merged"
        assert "_call_impl" in opened
        assert gpu["endValue"] == 35
        ends = {names[stack[-1]] for stack in gpu["samples"]}
        assert ends == {"gemm", "elementwise", "orphan"}
        assert {"name": "forward", "file": "model.py", "line": 12} in document["shared"]["frames"]

    @pytest.mark.parametrize(
        "name",
        [
            "h100_torch26_qwen05b_bs16_infer.json.gz",
            "a100_ddp2_resnet_nccl_rank0.json.gz",
            "small/cpu_torch213_dataloader.pt.trace.json.gz",
            "small/mi250_rocm62_minitoy_train.json.gz",
            "small/malformed_torch213_unescaped_quotes.json",
            "small/malformed_truncated_json.json.gz",
            "small/malformed_truncated_gzip.json.gz",
            "small/gp100_gpu_user_annotation.json.gz",
        ],
    )
    def test_recorded(self, recorded, name):
        document = exported(Analysis(read_trace(recorded / name)))
        assert document["profiles"]

    def test_frames_that_do_not_nest_are_cut(self, write):
        events = [
            span("cpu_op", "outer", 0, 100),
            span("cpu_op", "over", 50, 150),
            span("cpu_op", "empty", 60, 60),
            span("cpu_op", "after", 100, 160),
            kernel("k", 10, 20, 1, 8),
        ]
        exported(analysed(write, events))

    def test_the_check_fails_where_it_should(self, write):
        text = speedscope.render(flames.stacks_of(analysed(write, PLANTED)), "x")
        document = json.loads(text)
        document["profiles"][0]["events"].pop()
        with pytest.raises(AssertionError, match="all that opens closes"):
            check_speedscope(json.dumps(document))
