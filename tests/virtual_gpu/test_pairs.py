"""Steps with and without gradient synchronisation on the virtual GPU: planted communication.

A bucket of gradients travels beside the backward pass, on an engine of its own, as soon as its part
of the pass is done; the optimizer waits for the last one.
"""

import pytest
import torch
from batchadvisor.probes.devices.torch_devices import CudaProbe
from batchadvisor.probes.distributed.sync_pairs import WARMUP_PAIRS, PairWindow

from .device import VirtualGpu
from .torch_cuda import install

FORWARD_MS, PART_MS, OPTIMIZER_MS, NUM_BUCKETS = 10.0, 5.0, 2.0, 4
COMPUTE_S = (FORWARD_MS + NUM_BUCKETS * PART_MS + OPTIMIZER_MS) / 1e3


class Replica:
    """One rank's model as DistributedDataParallel wraps it."""

    def __init__(self, gpu, bucket_ms, shrink=1.0):
        self.gpu, self.bucket_ms, self.shrink = gpu, bucket_ms, shrink
        self.num_steps = 0
        self.require_backward_grad_sync = True
        self.links = gpu.stream()

    def step(self, fetch_ms=0.0):
        gpu, compute = self.gpu, self.gpu.current_stream
        self.num_steps += 1
        gpu.clock.pass_ms(fetch_ms)
        gpu.launch(FORWARD_MS * self.shrink)
        for _ in range(NUM_BUCKETS):
            gpu.clock.pass_ms(0.2 * self.shrink)  # the host queues, and runs ahead
            gpu.launch(PART_MS * self.shrink)
            if self.require_backward_grad_sync:
                self.links.wait_stream(compute)
                gpu.current_stream = self.links
                gpu.copy(self.bucket_ms)
                gpu.current_stream = compute
        compute.wait_stream(self.links)
        gpu.launch(OPTIMIZER_MS * self.shrink)


def exposed_ms(bucket_ms):
    """By hand: buckets leave every PART_MS, one after the other."""
    end = 0.0
    for number in range(1, NUM_BUCKETS + 1):
        end = max(end, number * PART_MS) + bucket_ms
    return end - NUM_BUCKETS * PART_MS


def pairs_of(replica, monkeypatch, fetch_ms=0.0):
    gpu = replica.gpu
    install(gpu, monkeypatch)
    window = PairWindow(
        0,
        [replica],
        CudaProbe(torch.device("cuda:0"), None),
        agree=bool,
        time_limit_s=60.0,
        clock=lambda: gpu.clock() / 1e9,
    )
    window.resume()
    while True:
        replica.step(fetch_ms)
        if window.boundary():
            break
        window.resume()
    return window.result()


@pytest.mark.parametrize("bucket_ms", [0.5, 4.0, 8.0, 30.0])
def test_communication_that_the_backward_pass_does_not_cover(monkeypatch, bucket_ms):
    replica = Replica(VirtualGpu(launch_us=5.0), bucket_ms)
    pairs = pairs_of(replica, monkeypatch)
    assert len(pairs.compute_s) == len(pairs.step_s) >= 8
    whole_s = COMPUTE_S + exposed_ms(bucket_ms) / 1e3
    assert pairs.compute_s == pytest.approx([COMPUTE_S] * len(pairs.compute_s), rel=0.02)
    assert pairs.step_s == pytest.approx([whole_s] * len(pairs.step_s), rel=0.02)
    assert pairs.unavailable["exposed_s"].startswith("this torch's DDP keeps no clock")
    assert replica.require_backward_grad_sync


def test_what_the_host_does_ahead_of_the_gpu_is_not_counted(monkeypatch):
    """As in training, a step begins while the GPU still computes the one before."""
    pairs = pairs_of(Replica(VirtualGpu(launch_us=5.0), 4.0), monkeypatch, fetch_ms=12.0)
    whole_s = COMPUTE_S + exposed_ms(4.0) / 1e3
    assert pairs.compute_s == pytest.approx([COMPUTE_S] * len(pairs.compute_s), rel=0.02)
    assert pairs.step_s == pytest.approx([whole_s] * len(pairs.step_s), rel=0.02)


@pytest.mark.parametrize(("shrink", "num"), [(2.0, 3), (1.0, 7), (0.1, 17)])
def test_several_short_steps_count_together(monkeypatch, shrink, num):
    """Three steps a stretch where they are long, more where they are short; the same times."""
    replica = Replica(VirtualGpu(launch_us=5.0), 4.0 * shrink, shrink)
    pairs = pairs_of(replica, monkeypatch)
    whole_s = shrink * (COMPUTE_S + exposed_ms(4.0) / 1e3)
    assert pairs.compute_s[-1] == pytest.approx(shrink * COMPUTE_S, rel=0.02)
    assert pairs.step_s[-1] == pytest.approx(whole_s, rel=0.02)
    assert replica.num_steps == 3 + num * (2 * (WARMUP_PAIRS + len(pairs.step_s)) - 1)
