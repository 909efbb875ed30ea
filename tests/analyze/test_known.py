"""What is known is said where the cause is not, and nothing is blamed that was not recorded."""

from __future__ import annotations

import re

import pytest
from batchadvisor.advisor.explain.remedies import remedy_of
from batchadvisor.cli import cli
from batchadvisor.probes.trace.kineto_names import is_communication
from batchadvisor.records import Copies, Profile
from batchadvisor.session.analyze import analyze
from click.testing import CliRunner

from .traces import event, kernel, launch, save, step
from .wholes import shown


def report_of(tmp_path, events):
    return analyze([save(tmp_path / "t.json", events)]).traces[0]


def text_of(tmp_path, events):
    path = save(tmp_path / "t.json", events)
    return CliRunner().invoke(cli, ["analyze", str(path)], catch_exceptions=False).output


def blocked(num_steps=5):
    """Decoding: the next kernel is launched at once, then the host sits in a blocking copy."""
    events = []
    for number in range(num_steps):
        begin = 500_000.0 * number
        events.append(step(number, begin, 499_990))
        events.append(event("cpu_op", "aten::mm", begin, 40))
        events.append(launch(begin + 10, 2 * number + 1, name="hipLaunchKernel"))
        events.append(kernel(begin + 20, 20, 2 * number + 1))
        events.append(launch(begin + 45, 2 * number + 2, name="hipLaunchKernel"))
        events.append(launch(begin + 60, 10_000 + number, 463_060, "hipMemcpyWithStream"))
        events.append(kernel(begin + 463_345, 36_000, 2 * number + 2, name="void f<int>(int*)"))
    return events


def test_a_host_in_a_blocking_copy_is_not_late(tmp_path):
    report = report_of(tmp_path, blocked())
    verdict = report.verdict
    assert verdict.limit == "cannot tell"
    assert report.host_pct < 1
    assert "for 93% of the window nothing ran" in verdict.message
    assert "waited for another stream" in verdict.message
    assert "the longest gap, 463 ms, was ended by f" in verdict.message
    assert "hipLaunchKernel had launched after 10 µs" in verdict.message
    assert "hipMemcpyWithStream for 93% of the window" in verdict.message
    assert "profile" not in verdict.remedy
    shown = text_of(tmp_path, blocked())
    assert "hipMemcpyWithStream for 93% of the window (5 calls, the longest 463 ms)" in shown


def test_calls_below_a_fifth_of_the_window_are_not_named(tmp_path):
    events = [step(0, 0, 1000), launch(0, 1, 199), kernel(200, 700, 1), launch(900, 2, 0.009)]
    assert "in the GPU's API" not in text_of(tmp_path, events)
    events[1] = launch(0, 1, 201)
    shown = text_of(tmp_path, events)
    assert "cudaLaunchKernel for 20% of the window (2 calls, the longest 201 µs)" in shown


def test_launches_from_before_the_trace(tmp_path):
    events = [step(0, 0, 1000), *(kernel(200.0 * n, 20, n) for n in range(5))]
    verdict = report_of(tmp_path, events).verdict
    assert verdict.limit == "cannot tell"
    assert "launched before the trace began" in verdict.message
    assert "the calls that launch work are missing" in verdict.remedy
    events += [launch(1, 99), event("cpu_op", "aten::mm", 0, 900)]
    remedy = report_of(tmp_path, events).verdict.remedy
    assert "warm-up step" in remedy
    assert "CPU" not in remedy


def gpu_calls(category="cuda_runtime", name="cudaLaunchKernel"):
    """Long operators and calls of the GPU's API, and no activity of the GPU."""
    events = [step(0, 0, 10_000)]
    for number in range(9):
        events.append(event("cpu_op", "aten::mm", 1000.0 * number, 990))
        events.append(event(category, name, 1000.0 * number + 5, 5, correlation=number))
    return events


@pytest.mark.parametrize(
    ("category", "name"),
    [
        ("cuda_runtime", "cudaLaunchKernel"),
        ("cuda_driver", "cuLaunchKernelEx"),
        ("xpu_runtime", "urEnqueueKernelLaunch"),
        ("cuda_runtime", "hipMemcpyWithStream"),
    ],
)
def test_calls_without_activity_leave_the_cpu_unblamed(category, name, tmp_path):
    report = report_of(tmp_path, gpu_calls(category, name))
    verdict = report.verdict
    assert (verdict.limit, verdict.larger_batch) == ("cannot tell", "unknown")
    assert "no GPU activity was recorded: the trace holds 9 calls" in verdict.message
    assert "no GPU activity was recorded" in report.profile.unavailable["busy_pct"]
    assert "no GPU activity was recorded" in report.notes[0]


@pytest.mark.parametrize("category", ["mtia_ccp_events", "mlu_runtime"])  # hpu_op: faults.py
def test_accelerators_that_are_not_read(category, tmp_path):
    verdict = report_of(tmp_path, gpu_calls(category, "work")).verdict
    assert verdict.limit == "cannot tell"
    assert f"an accelerator that this version does not read ({category})" in verdict.message


def test_a_cpu_without_such_calls_is_still_judged(tmp_path):
    """The profiler's own last call waits for a device that did nothing."""
    events = [call for call in gpu_calls() if call["cat"] != "cuda_runtime"]
    events += [event("cuda_runtime", "cudaDeviceSynchronize", 9_990, 5)]
    events += [event("cpu_instant_event", "x", 5, 0), event("gpu_user_annotation", "y", 5, 1)]
    assert report_of(tmp_path, events).verdict.limit == "saturated"


def test_an_intel_gpu_is_read_as_any_other(tmp_path):
    events = []
    for number in range(3):
        begin = 100.0 * number
        events.append(step(number, begin, 99))
        call = event("xpu_runtime", "urEnqueueKernelLaunch", begin + 80, 4, correlation=number + 1)
        events += [call, kernel(begin + 86, 10, number + 1)]
    report = report_of(tmp_path, events)
    assert report.host_pct > 80
    assert report.profile.device_wait_pct == 0


def test_inference_gets_no_training_advice(tmp_path):
    events = []
    for number in range(3):
        begin = 1000.0 * number
        events += [step(number, begin, 990), event("cpu_op", "aten::mm", begin, 400)]
        events += [launch(begin + 10, 2 * number), kernel(begin + 20, 200, 2 * number)]
        events.append(launch(begin + 30, 2 * number + 1))
        events.append(kernel(begin + 220, 700, 2 * number + 1, name="two_shot_all_reduce_kernel"))
    verdict = report_of(tmp_path, events).verdict
    assert verdict.limit == "communication"
    assert "gradient" not in verdict.remedy
    trained = [*events, event("cpu_op", "autograd::engine::evaluate_function: Mm", 5, 1)]
    assert "gradient" in report_of(tmp_path, trained).verdict.remedy


def test_shares_that_do_not_stand_out_are_listed(tmp_path):
    """Computing 65 %, and each loss below a sixth."""
    events = []
    for number in range(4):
        begin = 1000.0 * number
        events.append(step(number, begin, 1000))
        correlation = 4 * number
        events += [launch(begin, correlation, 5), launch(begin + 130, correlation + 1, 5)]
        events += [kernel(begin + 6, 124, correlation, name="ncclDevKernel_AllReduce")]
        events += [kernel(begin + 250, 650, correlation + 1)]
    verdict = report_of(tmp_path, events).verdict
    assert verdict.limit == "cannot tell"
    assert "computing 65%" in verdict.message
    assert "communication that no computation covers 12%" in verdict.message
    assert "batchadvisor run" in verdict.remedy
    assert "--budget" not in verdict.remedy


def loading(synchronises):
    """Half of each step the loader runs; on one of two GPUs the host waits for it before."""
    events = []
    for number in range(4):
        begin = 1000.0 * number
        events += [step(number, begin, 999), event("cpu_op", "aten::mm", begin + 510, 30)]
        loader = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        events.append(event("user_annotation", loader, begin, 510))
        events += [launch(begin + 530, number + 1), kernel(begin + 540, 400, number + 1)]
        events.append(event("cpu_op", "autograd::engine::evaluate_function: Mm", begin + 536, 3))
        if synchronises:
            events.append(launch(begin + 545, 0, 450, name="cudaDeviceSynchronize"))
    return events


def test_a_loader_after_a_synchronisation_gets_the_verdict_of_one_without(tmp_path):
    waits, ahead = (report_of(tmp_path, loading(number)).verdict for number in (True, False))
    for verdict in (waits, ahead):
        assert (verdict.limit, verdict.larger_batch) == ("input", "does not help")
        assert "51% of the step the GPU waits for the DataLoader" in verdict.message
        assert "workers" in verdict.remedy
    assert waits.gain_at_most == ahead.gain_at_most < 1.2


@pytest.mark.parametrize(
    "name",
    [
        "ncclDevKernel_AllReduce_Sum_f32(ncclDevComm*)",
        "void vllm::cross_device_reduce_1stage<float, 2>(vllm::RankData*)",
        "void multimem_all_reduce_kernel<c10::BFloat16, 16>",
        "void tensorrt_llm::kernels::ar_fusion::allreduce_fusion_kernel_oneshot_lamport<4>",
        "two_shot_all_reduce_kernel",
        "void quickreduce::allreduce_prototype_twoshot<1>",
        "nvshmemi_transfer_rma",
        "void mscclpp::allreduce<float>",
        "symm_mem_barrier",
    ],
)
def test_names_of_communication(name):
    assert is_communication(name)


@pytest.mark.parametrize(
    "name", ["void at::native::reduce_kernel<512, 1>", "ampere_sgemm_32x128_nt", "all_reduce_norms"]
)
def test_names_of_computation(name):
    assert not is_communication(name)


SYNCHRONIZE = "cudaStreamSynchronize"


class TestCopies:
    @pytest.mark.parametrize(
        ("direction", "words"),
        [
            ("HtoD", "pin_memory=True"),
            ("DtoH", "keep results on the GPU and copy them less often"),
            ("DtoD", ".contiguous()"),
        ],
    )
    def test_the_remedy_is_that_of_the_direction(self, direction, words):
        own = Copies(direction=direction, num_copies=9, total_s=0.5, num_bytes=None)
        less = Copies(direction="other", num_copies=9, total_s=0.1, num_bytes=None)
        assert words in remedy_of("copies", Profile(copies=(less, own)))

    def test_results_that_are_fetched_each_step(self, tmp_path):
        events = []
        for number in range(5):
            begin = 1000.0 * number
            events += [step(number, begin, 999), launch(begin, 2 * number + 1),
                       kernel(begin + 8, 400, 2 * number + 1),
                       launch(begin + 10, 2 * number + 2, 5, "cudaMemcpyAsync"),
                       event("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", begin + 410, 570,
                             pid=0, tid=7, device=0, stream=7, correlation=2 * number + 2,
                             bytes=1 << 20)]  # fmt: skip
        verdict = analyze([save(tmp_path / "t.json", events)]).traces[0].verdict
        assert verdict.limit == "copies"
        assert "keep results on the GPU" in verdict.remedy
        assert "uint8" not in verdict.remedy


class TestWaits:
    """What a synchronisation takes is not what its removal saves."""

    @staticmethod
    def steps(host_us, gpu_us):
        """Each step: launches, then the host waits until the GPU is done."""
        events = []
        for number in range(5):
            begin = (host_us + gpu_us) * number
            events += [step(number, begin, host_us + gpu_us - 1),
                       event("cpu_op", "aten::mm", begin, host_us - 1),
                       launch(begin + host_us - 6, number + 1),
                       kernel(begin + host_us, gpu_us, number + 1),
                       launch(begin + host_us, 900 + number, gpu_us, SYNCHRONIZE)]  # fmt: skip
        return events

    @pytest.mark.parametrize(
        ("host_us", "gpu_us", "saved"),
        [(1900.0, 300.0, 14), (2000.0, 48_000.0, 4), (5000.0, 5000.0, 50)],
        ids=["the host paces", "it is the queue", "half and half"],
    )
    def test_the_smaller_of_host_and_device_bounds_it(self, host_us, gpu_us, saved, tmp_path):
        path = save(tmp_path / "t.json", self.steps(host_us, gpu_us))
        (report,) = analyze([path]).traces
        (note,) = (note for note in report.notes if "waits for the GPU" in note)
        assert f"shorter by {saved}% at most" in note
        assert f"shorter by {saved}% at most" in re.sub(r"\s+", " ", shown(path))
        assert report.synchronisation_pct <= saved + 0.5

    def test_short_waits_are_not_spoken_of(self, tmp_path):
        (report,) = analyze([save(tmp_path / "t.json", self.steps(900.0, 50.0))]).traces
        assert not any("waits for the GPU" in note for note in report.notes)
