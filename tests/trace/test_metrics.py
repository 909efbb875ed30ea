"""All metrics on one small synthetic trace, computed by hand, and on variations of it."""

import pytest
from batchadvisor.probes.trace.metrics import Analysis
from batchadvisor.probes.trace.nesting import Nesting
from batchadvisor.probes.trace.reader import read_trace

A100 = {
    "id": 0, "name": "A100", "computeMajor": 8, "computeMinor": 0, "numSms": 100, "warpSize": 32,
    "maxThreadsPerMultiprocessor": 2048, "regsPerMultiprocessor": 65536,
    "sharedMemPerMultiprocessor": 167936,
}  # fmt: skip


def span(cat, name, start, end, tid=1, **args):
    return {
        "ph": "X", "cat": cat, "name": name, "pid": 100, "tid": tid,
        "ts": start, "dur": end - start, "args": args,
    }  # fmt: skip


def work(cat, name, start, end, *, correlation, stream=7, **args):
    args = {"device": 0, "stream": stream, "correlation": correlation} | args
    return span(cat, name, start, end, tid=stream, **args) | {"pid": 0}


def kernel(name, start, end, correlation, blocks, *, stream=7):
    shape = {"registers per thread": 32, "shared memory": 0, "block": [256, 1, 1]}
    launch = {"correlation": correlation, "stream": stream}
    return work("kernel", name, start, end, **launch, grid=[blocks, 1, 1], **shape)


EVENTS = [
    span("user_annotation", "ProfilerStep#1", 0, 100),
    span("user_annotation", "ProfilerStep#2", 100, 200),
    span("user_annotation", "enumerate(DataLoader)#_SingleProcess.__next__", 0, 20),
    span("user_annotation", "enumerate(DataLoader)#_SingleProcess.__next__", 100, 105),
    span("cpu_op", "aten::mm", 20, 60),
    span("cpu_op", "aten::empty", 30, 40),
    span("cpu_op", "aten::add", 50, 70, tid=2),
    span("cuda_runtime", "cudaMemcpyAsync", 22, 26, correlation=2),
    span("cuda_runtime", "cudaLaunchKernel", 50, 54, correlation=1),
    span("cuda_runtime", "cudaLaunchKernel", 110, 114, correlation=3),
    span("cuda_driver", "cuLaunchKernelEx", 115, 117, correlation=4),
    span("cuda_runtime", "cudaDeviceSynchronize", 120, 190, correlation=5),
    work("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 30, 40, correlation=2, bytes=1000),
    kernel("ampere_h16816gemm", 60, 90, 1, 50),
    kernel("triton_poi_fused_0", 130, 150, 3, 200),
    kernel("ncclDevKernel_AllReduce", 140, 180, 4, 25, stream=20),
    span("gpu_user_annotation", "ProfilerStep#1", 30, 90, tid=7),
]


def analyse(trace):
    return Analysis(trace).result()


@pytest.fixture
def result(write):
    return analyse(read_trace(write(EVENTS, deviceProperties=[A100])))


@pytest.fixture
def device(result):
    (device,) = result.devices
    return device


def us(microseconds):
    return pytest.approx(microseconds / 1e6, abs=1e-12)


def check(record, unit=1.0, **wanted):
    """Fields of a record, in a unit."""
    found = {field: getattr(record, field) / unit for field in wanted}
    assert found == pytest.approx(wanted, abs=1e-6)


def test_steps(result):
    assert [step.name for step in result.steps] == ["ProfilerStep#1", "ProfilerStep#2"]
    assert (result.step_s, result.step_source) == (us(90), "GPU end to GPU end")
    assert (result.window_s, result.window_source) == (us(200), "steps")


def test_shares_of_the_device(device):
    assert device.name == "A100"
    assert device.unavailable == {}
    check(
        device,
        busy_pct=45,
        kernel_pct=40,
        compute_pct=25,
        communication_pct=20,
        exposed_communication_pct=15,
        exposed_copy_pct=5,
        sm_efficiency_pct=21.25,
        sm_efficiency_computing_pct=70,
        # 0.5 and 2 blocks of 256 threads on 2048 places, weighted by 30 and 20 us.
        occupancy_pct=(30 * 6.25 + 20 * 25) / 50,
        tensor_core_pct=60,
        tensor_core_unknown_pct=40,
        short_kernel_pct=0,
    )


def test_copies_and_idle_time_of_the_device(device):
    (copies,) = device.copies
    assert (copies.direction, copies.num_copies, copies.num_bytes) == ("HtoD", 1, 1000)
    assert copies.total_s == us(10)
    causes = {"launch_latency_pct": 13, "tail_pct": 10, "dependency_pct": 0, "unknown_pct": 0}
    host = {"input_pct": 12.5, "synchronize_pct": 0, "launch_pct": 4, "call_pct": 2}
    check(device.idle, total_pct=55, **causes, **host, host_pct=13.5)


def launch(start, end, correlation, name="cudaLaunchKernel"):
    return span("cuda_runtime", name, start, end, correlation=correlation)


@pytest.mark.parametrize(
    ("events", "causes"),
    [
        # The host launches early in a long gap and then sits in a copy that waits for the device.
        ([kernel("before", 0, 10, 1, 1), kernel("after", 1000, 1010, 2, 1),
          launch(-5, -4, 1, "hipLaunchKernel"), launch(12, 15, 2, "hipLaunchKernel"),
          launch(16, 1020, 3, "hipMemcpyWithStream")],
         {"host": 2, "launch": 3, "dependency": 985}),
        # The call began before the gap: loading a module, say; the device waits for it.
        ([kernel("before", 0, 100, 1, 1), kernel("after", 1605, 1700, 2, 1),
          launch(-5, -4, 1), launch(90, 1600, 2)],
         {"launch": 1500, "launch_latency": 5}),
        # Launched before the gap began: 29 us are launch latency, 30 us are not.
        ([kernel("a", 0, 10, 1, 1), kernel("b", 39, 50, 2, 1), kernel("c", 80, 90, 3, 1),
          kernel("unlaunched", 95, 99, 4, 1), *(launch(-5, -4, number) for number in (1, 2, 3))],
         {"launch_latency": 29, "dependency": 30, "unknown": 5}),
    ],
    ids=["launched early", "a launch that lasts", "queued"],
)  # fmt: skip
def test_a_gap_is_divided_where_its_launch_returned(write, events, causes):
    analysis = Analysis(read_trace(write(events)))
    (device,) = analysis.devices
    start, end, _ = analysis.window()
    total_ns = device.idle(analysis.causes, start, end).total_ns()
    assert {cause: ns / 1e3 for cause, ns in total_ns.items() if ns} == causes


def test_breakdown(result):
    gpu = {"compute_s": 30, "communication_s": 0, "memcpy_s": 10}
    host = {"runtime_s": 8, "input_s": 20, "operator_s": 22, "other_s": 10}
    check(result.steps[0].breakdown, 1e-6, **gpu, **host)
    assert result.breakdown.communication_s == us(30 / 2)


def test_host(result):
    check(result, operators_pct=25, input_wait_pct=12.5)
    assert [(row.name, row.num_calls, row.self_s) for row in result.operators] == [
        ("aten::mm", 1, us(30)),
        ("aten::add", 1, us(20)),
        ("aten::empty", 1, us(10)),
    ]


def test_kernels(result):
    assert [(row.name, row.total_s) for row in result.kernels] == [
        ("ncclDevKernel_AllReduce", us(40)),
        ("ampere_h16816gemm", us(30)),
        ("triton_poi_fused_0", us(20)),
    ]
    assert result.kernels[1].occupancy_pct == pytest.approx(6.25)


def test_launches_decide_whose_work_it_is(write):
    """The host runs a step ahead: work of the second step runs after its range."""
    late = [*EVENTS, launch(150, 151, 9), kernel("late", 250, 260, 9, 1)]
    result = analyse(read_trace(write(late, deviceProperties=[A100])))
    assert result.step_s == us(170)
    assert result.window_s == us(260)
    assert result.steps[1].window_s == us(160)


def test_overlap_on_one_stream_counts_once(write):
    """Kernels of one stream may overlap on newer GPUs."""
    events = [kernel("a", 0, 60, 1, 1), kernel("b", 10, 20, 2, 1), kernel("c", 50, 100, 3, 1)]
    result = analyse(read_trace(write(events)))
    assert result.window_source == "GPU span"
    assert result.devices[0].busy_pct == 100
    assert result.devices[0].idle.total_pct == 0
    assert result.step_s is None


def test_what_is_missing_has_a_reason(write):
    """ROCm writes no grids; hand-made kernels have no arguments at all."""
    bare = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 0, "ts": 1, "dur": 9}
    result = analyse(read_trace(write([bare])))
    (device,) = result.devices
    for field in ("sm_efficiency_pct", "occupancy_pct"):
        assert getattr(device, field) is None
        assert device.unavailable[field]
    assert device.short_kernel_pct == 100
    assert result.input_wait_s is result.input_wait_pct is None
    assert result.unavailable["input_wait_s"] == "the trace holds no host activity"


def test_empty_trace(write):
    result = analyse(read_trace(write([])))
    assert result.window_source == "none"
    assert result.breakdown is None
    assert {"devices", "operators_pct", "input_wait_pct", "step_s"} <= result.unavailable.keys()


def test_self_time_of_ranges_that_do_not_nest(write):
    """A range that outlasts its parent takes only what the parent has."""
    spans = [(0, 100), (50, 150), (60, 70), (150, 160)]
    trace = read_trace(write([span("cpu_op", "a", *pair) for pair in spans]))
    assert (Nesting(trace.operators).self_times() / 1000).tolist() == [50, 90, 10, 10]


def test_what_ended_before_the_window_is_not_in_it(write):
    """A short kernel ended before the step, beside a long one that reaches into it."""
    events = [
        span("user_annotation", "ProfilerStep#1", 50, 200),
        kernel("long", 0, 100, 1, 50), kernel("short", 20, 30, 2, 50, stream=8),
        work("gpu_memcpy", "Memcpy HtoD", 35, 40, correlation=4, stream=9, bytes=8),
        kernel("inside", 110, 120, 3, 50),
    ]  # fmt: skip
    (device,) = analyse(read_trace(write(events))).devices
    assert (device.num_kernels, device.num_launches, device.copies) == (2, 2, ())
    assert device.kernel_pct == 40


def steps(*kernels):
    """Steps of 100 us; each launches a kernel as it begins, (start, end, stream), or none."""
    events = []
    for number, launched in enumerate(kernels):
        begin = 100 * number
        events.append(span("user_annotation", f"ProfilerStep#{number}", begin, begin + 99))
        if launched is not None:
            start, end, stream = launched
            events.append(launch(begin, begin + 1, number + 1))
            events.append(kernel("k", start, end, number + 1, 1, stream=stream))
    return events


def test_a_window_begins_after_the_work_of_older_steps(write):
    """Else it would hold a step's work too many: each step here takes 100, 40 of it on the GPU."""
    own = steps((110, 150, 7), (210, 250, 7), (310, 350, 7))
    result = analyse(read_trace(write([kernel("of an older step", 10, 50, 9, 50), *own])))
    assert result.window_s == us(300)
    check(result.devices[0], busy_pct=40, num_kernels=3)


def test_a_step_without_gpu_work_is_a_step(write):
    events = steps((10, 50, 7), (110, 150, 7), None, (310, 350, 7))
    assert analyse(read_trace(write(events))).step_s == us(100)


def test_gpu_ends_in_the_wrong_order_are_no_pace(write):
    """Work of the first step outlasts that of the second, on another stream."""
    result = analyse(read_trace(write(steps((10, 400, 0), (110, 150, 1)))))
    assert (result.step_s, result.step_source) == (us(100), "host start to host start")


@pytest.mark.parametrize(("bare_us", "known"), [(5, True), (50, False)])
def test_an_efficiency_needs_the_grids_of_all_kernels(bare_us, known, write):
    """Kernels without a grid would count as empty, and the efficiency be no upper bound."""
    bare = work("kernel", "of a graph", 100, 100 + bare_us, correlation=2)
    events = [kernel("a", 0, 100, 1, 100), bare]
    (device,) = analyse(read_trace(write(events, deviceProperties=[A100]))).devices
    for field in ("sm_efficiency_pct", "sm_efficiency_computing_pct"):
        assert (getattr(device, field) is not None) == known
        assert known or "67%" in device.unavailable[field]


def test_collectives_without_grids_leave_the_computing_alone(write):
    bare = work("kernel", "ncclDevKernel_AllReduce", 100, 300, correlation=2)
    events = [kernel("a", 0, 100, 1, 100), bare]
    (device,) = analyse(read_trace(write(events, deviceProperties=[A100]))).devices
    assert device.sm_efficiency_pct is None
    assert "33% of the kernel time" in device.unavailable["sm_efficiency_pct"]
    assert device.sm_efficiency_computing_pct == 100


@pytest.mark.parametrize(("end", "waited"), [(70, 0), (95, 90)])
def test_a_graph_blocks_until_its_last_copy(end, waited, write):
    events = [
        launch(5, end, 1, "cudaGraphLaunch"),
        work("gpu_memcpy", "Memcpy HtoD", 10, 20, correlation=1),
        work("gpu_memcpy", "Memcpy DtoH", 80, 90, correlation=1),
        kernel("k", 0, 200, 2, 1, stream=8),
    ]
    assert analyse(read_trace(write(events))).device_wait_s == us(waited)
