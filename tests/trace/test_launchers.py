"""Who launched a kernel: planted in small traces, and in recorded ones."""

from pathlib import Path

import pytest
from batchadvisor.probes.trace import kineto_names
from batchadvisor.probes.trace.reader import read_trace
from batchadvisor.probes.trace.summary import profile_of
from batchadvisor.records import Launcher

from .test_metrics import analyse, kernel, span

FORWARD, MODULE = "model.py(12): forward", "nn.Module: Linear_3"


def frame(name, start, end, tid=1):
    return span("python_function", name, start, end, tid=tid)


def link(number, forward, backward):
    """A flow from (time, thread) to (time, thread)."""
    flow = {"cat": "fwdbwd", "name": "fwdbwd", "pid": 100, "id": number}
    (start, source), (end, target) = forward, backward
    return [
        flow | {"ph": "s", "ts": start, "tid": source},
        flow | {"ph": "f", "ts": end, "tid": target, "bp": "e"},
    ]


PLANTED = [
    span("user_annotation", "ProfilerStep#1", 0, 100),
    frame("train.py(40): main", 0, 100),
    frame(MODULE, 5, 40),
    frame("torch/nn/modules/module.py(1741): _call_impl", 6, 39),
    frame(FORWARD, 7, 38),
    frame("<built-in method matmul of type object at 0x7f00>", 8, 30),
    span("cpu_op", "aten::linear", 9, 29),
    span("cpu_op", "aten::addmm", 10, 28),
    span("cuda_runtime", "cudaLaunchKernel", 12, 14, correlation=1),
    span("cuda_runtime", "cudaLaunchKernel", 32, 34, correlation=2),
    # On autograd's own thread there are no frames.
    span("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", 50, 70, tid=2),
    span("cpu_op", "AddmmBackward0", 51, 69, tid=2),
    span("cpu_op", "aten::mm", 52, 68, tid=2),
    span("cuda_runtime", "cudaLaunchKernel", 53, 55, tid=2, correlation=3),
    *link(7, (10, 1), (50, 2)),
    kernel("gemm", 60, 70, 1, 8),
    kernel("elementwise", 70, 74, 2, 8),
    kernel("gemm", 74, 94, 3, 8),
    kernel("orphan", 94, 95, 99, 8),
]


def table(write, events):
    return {row.name: row for row in analyse(read_trace(write(events))).kernels}


def test_the_operator_the_line_and_the_module(write):
    rows = table(write, PLANTED)
    place = {"line": FORWARD, "module": "Linear", "num_modules": 1}
    assert rows["gemm"].launchers == (
        Launcher(operator="aten::mm", backward=True, num_calls=1, total_s=20e-6, **place),
        Launcher(operator="aten::addmm", num_calls=1, total_s=10e-6, **place),
    )
    # Launched between two operators: the line is known all the same.
    assert rows["elementwise"].launchers == (
        Launcher(operator="", num_calls=1, total_s=4e-6, **place),
    )
    assert (rows["orphan"].launchers, rows["orphan"].num_launchers) == ((), 0)


def test_without_a_link_the_backward_pass_has_no_line(write):
    events = [event for event in PLANTED if event["cat"] != "fwdbwd"]
    (backward, _) = table(write, events)["gemm"].launchers
    assert (backward.operator, backward.line, backward.backward) == ("aten::mm", "", False)


def test_without_stacks_there_are_operators_alone(write):
    events = [event for event in PLANTED if event["cat"] != "python_function"]
    result = analyse(read_trace(write(events)))
    assert not result.stacks
    gemm = next(row for row in result.kernels if row.name == "gemm")
    assert [place.operator for place in gemm.launchers] == ["aten::mm", "aten::addmm"]
    assert {place.line for place in gemm.launchers} == {""}
    assert all(row.callers == () for row in result.operators)


def test_operators_know_their_callers_and_their_work_on_the_device(write):
    rows = {row.name: row for row in analyse(read_trace(write(PLANTED))).operators}
    assert rows["aten::addmm"].device_s == pytest.approx(10e-6)
    assert rows["aten::linear"].device_s == 0
    assert rows["aten::mm"].device_s == pytest.approx(20e-6)
    (caller,) = rows["aten::addmm"].callers
    assert (caller.operator, caller.line) == ("aten::linear", FORWARD)
    assert caller.total_s == pytest.approx(rows["aten::addmm"].self_s)


def test_places_that_are_the_same_are_one(write):
    """A module of the same kind, called from the same line, is no other place."""
    again = []
    for event in (event for event in PLANTED if event["cat"] != "fwdbwd"):
        name = event["name"].replace("Linear_3", "Linear_4").replace("Step#1", "Step#2")
        args = {key: number + 100 for key, number in event["args"].items() if key == "correlation"}
        again.append(event | {"ts": event["ts"] + 200, "name": name, "args": event["args"] | args})
    rows = table(write, PLANTED + again)
    forward = next(place for place in rows["gemm"].launchers if place.operator == "aten::addmm")
    assert (forward.num_calls, forward.num_modules, forward.module) == (2, 2, "Linear")


def test_damaged_links_and_frames_are_left_out(write):
    flow = {"cat": "fwdbwd", "name": "fwdbwd", "pid": 100}
    events = [
        *PLANTED,
        flow | {"ph": "f", "tid": 2, "ts": 51, "id": "x"},
        flow | {"ph": "s", "tid": 1, "ts": None, "id": 9},
        flow | {"ph": "f", "tid": 2, "ts": 52, "id": 2**70},
        flow | {"ph": "f", "tid": 2, "ts": 52, "id": 8},
        {"ph": "X", "cat": "python_function", "name": "a", "pid": 100, "tid": 1, "ts": "?"},
    ]
    assert len(read_trace(write(events)).backward) == 1
    assert table(write, events) == table(write, PLANTED)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("train.py(40): main", True),
        ("transformers/models/qwen2/modeling_qwen2.py(56): forward", True),
        ("/home/x/torch_models/net.py(3): forward", True),
        ("/usr/lib/python3.12/site-packages/timm/models/vit.py(9): forward", True),
        ("/usr/lib/python3.12/contextlib.py(80): inner", False),
        ("<string>(1): <module>", True),
        ("torch/nn/modules/linear.py(124): forward", False),
        ("/usr/lib/python3.12/site-packages/torch/nn/functional.py(1): relu", False),
        ("threading.py(1032): _bootstrap", False),
        ("batchadvisor/probes/worker/patches.py(93): iterator_next", False),
        ("<frozen runpy>(198): _run_module_as_main", False),
        ("<built-in method mean of Tensor object>", False),
        ("nn.Module: Linear_3", False),
    ],
)
def test_lines_of_the_model(name, wanted):
    assert kineto_names.is_of_the_model(name) is wanted


def test_recorded_with_stacks(recorded):
    """Qwen on an H100: the feed-forward layers' products come from where transformers has them."""
    trace = read_trace(recorded / "h100_torch26_qwen05b_bs16_infer.json.gz")
    assert len(trace.python_names) < 600  # 4,262 frames; addresses of objects tell nothing apart
    profile = profile_of(analyse(trace), "")
    assert profile.stacks
    top = profile.kernels[0]
    assert top.tensor_cores == "yes"
    # 24 layers of 7 products; the others were launched before the trace began.
    assert sum(place.num_calls for place in top.launchers) == 24 * 7 < top.num_calls
    first = top.launchers[0]
    assert (first.operator, first.module, first.num_modules) == ("aten::mm", "Linear", 72)
    assert first.line == "transformers/models/qwen2/modeling_qwen2.py(56): forward"
    assert profile.kernels_s == pytest.approx(sum(row.total_s for row in profile.kernels))
    assert profile.num_kernels == len(profile.kernels) == 26


def test_recorded_backward_pass(recorded):
    """ResNet on an A100: every gradient of a convolution was launched by its operator."""
    rows = analyse(read_trace(recorded / "a100_ddp2_resnet_nccl_rank0.json.gz")).kernels
    by_name = {row.name: row for row in rows}
    (reduce,) = by_name[rows[0].name].launchers
    assert (reduce.operator, reduce.num_calls) == ("record_param_comms", 15)
    gradients = [row for row in rows if "dgrad" in row.name]
    assert gradients
    for row in gradients:
        assert {place.operator for place in row.launchers} == {"aten::convolution_backward"}


def test_own_frames_are_known_in_a_folder_of_any_name():
    """A checkout may be called anything, and is then not in the path that Kineto cuts off."""
    folder = Path(kineto_names.__file__).parents[2]
    name = kineto_names.frame_name(f"{folder}/probes/worker/patches.py(160): run_backward")
    assert name == "batchadvisor/probes/worker/patches.py(160): run_backward"
    assert kineto_names.is_of_no_interest(name)
    assert not kineto_names.is_of_the_model(name)
    assert kineto_names.frame_name("train.py(3): <lambda> at 0x7f") == "train.py(3): <lambda>"
