"""CUPTI: what torch's profiler writes of planted work, and what batchadvisor makes of it."""

import gzip
import json

import pytest
from batchadvisor.probes.trace.summary import summarise

pytestmark = pytest.mark.gpu_build
SMS, THREADS_OF_SM, BLOCK, KERNEL_US = 100, 2048, 128, 2000
SLOW_CARD = """
sms = 100
kernel_us = 2000
bandwidth_gb_s = 1000000
launch_us = 5000
copy_us = 500
pinned_gb_s = 1000
"""
"""A launch each 5 ms, a kernel of 2 ms: what the host does beside it takes far less."""

STEPS = """
import sys
import torch
from torch.profiler import ProfilerActivity, profile, record_function
torch.backends.cuda.matmul.allow_tf32 = False
blocks, steps, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
x = torch.zeros(blocks * 1024, device="cuda")
torch.cuda.synchronize()
activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
with profile(activities=activities, acc_events=True) as prof:
    for number in range(steps):
        with record_function(f"ProfilerStep#{number}"):
            for _ in range(10):
                x.add_(1)
    torch.cuda.synchronize()
prof.export_chrome_trace(path)
"""


ALL_KINDS = """
import json
import sys
import torch
from torch.profiler import ProfilerActivity, profile
x = torch.zeros(1 << 20, device="cuda")
host = torch.zeros(1 << 20).pin_memory()
side = torch.cuda.Stream()
a = torch.zeros(512, 512, device="cuda", dtype=torch.bfloat16)
a @ a
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    for _ in range(3):
        x.mul_(2)
torch.cuda.synchronize()
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as prof:
    for _ in range(4):
        x.add_(1)
    with torch.cuda.stream(side):
        x.copy_(host, non_blocking=True)
        a @ a
    side.synchronize()
    graph.replay()
    graph.replay()
    torch.cuda.synchronize()
prof.export_chrome_trace(sys.argv[1])
"""


def events(path):
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt") as file:
        return [event for event in json.load(file)["traceEvents"] if event.get("ph") == "X"]


def of_kind(found, *kinds):
    return [event for event in found if event["cat"] in kinds]


def test_all_that_was_launched_is_in_the_trace_once(machine, tmp_path):
    machine("cupti_drops_every = 0").script(ALL_KINDS, "trace.json")
    found = events(tmp_path / "trace.json")
    kernels = of_kind(found, "kernel")
    adds = [kernel for kernel in kernels if "CUDAFunctorOnSelf_add" in kernel["name"]]
    products = [kernel for kernel in kernels if "hgemm" in kernel["name"]]
    replayed = [kernel for kernel in kernels if kernel["args"]["graph id"]]
    assert (len(adds), len(products), len(replayed)) == (4, 1, 6)
    assert len(kernels) == 11
    (copy,) = of_kind(found, "gpu_memcpy")
    assert copy["args"]["bytes"] == 4 << 20
    assert copy["name"] == "Memcpy HtoD (Pinned -> Device)"
    calls = {call["args"]["correlation"]: call for call in of_kind(found, "cuda_runtime")}
    for work in [*kernels, copy]:
        call = calls[work["args"]["correlation"]]
        assert call["ts"] <= work["ts"]
        assert "Launch" in call["name"] or "Memcpy" in call["name"]
    launches = {kernel["args"]["correlation"] for kernel in replayed}
    assert {calls[number]["name"] for number in launches} == {"cudaGraphLaunch"}
    assert len(launches) == 2
    assert copy["args"]["stream"] == products[0]["args"]["stream"] != adds[0]["args"]["stream"]
    operators = {op["args"]["External id"]: op["name"] for op in of_kind(found, "cpu_op")}
    assert {operators[add["args"]["External id"]] for add in adds} == {"aten::add_"}


def step_spans(path):
    """(start, end) of each step, in microseconds, in order."""
    steps = [
        event
        for event in of_kind(events(path), "user_annotation")
        if "ProfilerStep#" in event["name"]
    ]
    steps.sort(key=lambda event: int(event["name"].removeprefix("ProfilerStep#")))
    return [(event["ts"], event["ts"] + event["dur"]) for event in steps]


def planted_busy_pct(path, numbers):
    """Ten kernels' planted time a step, over the time that these steps really took.

    40 % where the host launches as it is told to; beside other processes it comes late.
    """
    spans = step_spans(path)
    begin, end = spans[numbers[0]][0], spans[numbers[-1]][1]
    return 100 * len(numbers) * 10 * KERNEL_US / (end - begin)


def launches_within(path, spans):
    """Times of the launches in these spans: ten a step, unless the machine's clock was set back."""
    times = [
        event["ts"] for event in of_kind(events(path), "cuda_runtime") if "Launch" in event["name"]
    ]
    return [time for time in times if any(start <= time <= end for start, end in spans)]


@pytest.mark.parametrize("blocks", [50, 400])
def test_metrics_are_what_was_planted(machine, tmp_path, blocks):
    machine(SLOW_CARD).script(STEPS, blocks, 6, "trace.json")
    profile = summarise(tmp_path / "trace.json", "trace.json")
    busy = planted_busy_pct(tmp_path / "trace.json", range(6))
    assert profile.busy_pct == pytest.approx(busy, abs=1)
    share = min(1, blocks / SMS)
    assert profile.sm_efficiency_pct == pytest.approx(share * busy, abs=1)
    occupancy = 100 * blocks / SMS * BLOCK / THREADS_OF_SM
    assert profile.occupancy_pct == pytest.approx(occupancy, abs=2)
    assert profile.num_steps == 6


def test_kernels_that_were_lost_at_the_start_are_told(machine, tmp_path):
    cards = f"cupti_drops_first = 12\n{SLOW_CARD}"
    machine(cards).script(STEPS, 50, 6, "trace.json")
    kernels = of_kind(events(tmp_path / "trace.json"), "kernel")
    assert len(kernels) == 60 - 12
    profile = summarise(tmp_path / "trace.json", "trace.json")
    assert profile.num_steps == 4
    (said,) = profile.left_out
    assert said.startswith("steps 0, 1: ")
    spans = step_spans(tmp_path / "trace.json")
    launches = launches_within(tmp_path / "trace.json", spans[:2])
    assert f"12 of {len(launches)} launches" in said, (launches, spans)
    busy = planted_busy_pct(tmp_path / "trace.json", range(2, 6))
    assert profile.busy_pct == pytest.approx(busy, abs=1)


def test_kernels_that_were_lost_everywhere_forbid_a_verdict(machine, tmp_path):
    machine(f"cupti_drops_every = 7\n{SLOW_CARD}").script(STEPS, 50, 6, "trace.json")
    profile = summarise(tmp_path / "trace.json", "trace.json")
    assert profile.busy_pct is None
    assert "launches" in profile.unavailable["busy_pct"]


LOOP = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1024))

    def forward(self, x):
        for _ in range(4):
            x = x * self.weight
        return x


data = TensorDataset(torch.zeros(2048, 1024))
model = Scaled().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
for epoch in range(1000):
    for (x,) in DataLoader(data, batch_size=16, shuffle=True):
        model(x.cuda()).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def test_a_profiler_that_is_refused_is_told_with_what_allows_it(machine, tmp_path):
    (tmp_path / "train.py").write_text(LOOP)
    answer = machine("cupti_refuses = 1").answer("--sizes", "16,64", "--budget", "15s", "train.py")
    (said,) = [found for found in answer["advice"]["findings"] if found["rule"] == "profile.no_gpu"]
    assert "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES" in said["message"]
    assert "NVreg_RestrictProfilingToAdminUsers=0" in said["remedy"]
