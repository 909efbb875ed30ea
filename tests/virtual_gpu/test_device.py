"""The machine on paper keeps the laws of a real one."""

from __future__ import annotations

import pytest
import torch

from .device import Graph, VirtualGpu

MS = 1_000_000


@pytest.fixture
def gpu():
    return VirtualGpu()


def test_a_launch_does_not_wait(gpu):
    before = gpu.clock()
    end = gpu.launch(50)
    assert gpu.clock() == before
    assert end == before + 50 * MS
    gpu.synchronize()
    assert gpu.clock() == end


def test_kernels_run_one_after_the_other(gpu):
    for _ in range(10):
        gpu.launch(5)
    gpu.synchronize()
    assert gpu.clock() == 1 + 50 * MS
    assert gpu.busy_ns == 50 * MS


def test_streams_share_the_engine_and_keep_their_order(gpu):
    side = gpu.stream()
    gpu.launch(5)
    gpu.launch(5, stream=side)
    assert side.tail_ns == 1 + 10 * MS
    side.synchronize()
    assert gpu.clock() == 1 + 10 * MS
    gpu.default_stream.wait_stream(side)
    assert gpu.default_stream.tail_ns == side.tail_ns


def test_a_full_queue_holds_the_host():
    gpu = VirtualGpu(depth=4)
    for _ in range(4):
        gpu.launch(10)
    assert gpu.clock() == 1
    gpu.launch(10)
    assert gpu.clock() == 1 + 10 * MS
    for _ in range(100):
        gpu.launch(10)
    assert gpu.clock() == 1 + 1010 * MS  # in the long run the host is as fast as the device


def test_the_host_can_be_the_slower_one(gpu):
    for _ in range(10):
        gpu.clock.pass_ms(20)
        gpu.launch(5)
    gpu.synchronize()
    assert gpu.clock() == 1 + 205 * MS
    assert gpu.busy_ns == 50 * MS


def test_an_event_is_passed_in_the_device_s_time(gpu):
    first, second = gpu.event(enable_timing=True), gpu.event(enable_timing=True)
    first.record()
    gpu.launch(50)
    second.record()
    assert first.query()
    assert not second.query()
    with pytest.raises(RuntimeError, match="completed"):
        first.elapsed_time(second)
    gpu.clock.pass_ms(50)
    assert second.query()
    assert first.elapsed_time(second) == 50


def test_an_event_in_another_stream_waits_for_nothing(gpu):
    gpu.launch(50)
    event = gpu.event()
    event.record(gpu.stream())
    assert event.query()


def test_events_without_timing_have_none(gpu):
    first, second = gpu.event(), gpu.event()
    first.record()
    second.record()
    with pytest.raises(RuntimeError, match="enable_timing"):
        first.elapsed_time(second)


def test_a_graph_takes_one_place():
    gpu = VirtualGpu(depth=3)
    graph = Graph([1.0] * 50)
    for _ in range(3):
        gpu.replay(graph)
    assert gpu.clock() == 1
    gpu.synchronize()
    assert gpu.clock() == 1 + 150 * MS


def test_reading_a_number_waits(gpu):
    gpu.launch(50)
    gpu.item()
    assert gpu.clock() == 1 + 50 * MS
    assert gpu.num_waits == 1


def test_memory():
    gpu = VirtualGpu(capacity_bytes=100 * 2**20)
    kept = gpu.allocate(10 * 2**20)
    block = gpu.allocate(50 * 2**20)
    gpu.free(block)
    assert gpu.allocated_bytes == 10 * 2**20
    assert gpu.reserved_bytes == gpu.peak_reserved_bytes == 60 * 2**20
    gpu.allocate(40 * 2**20)
    assert gpu.reserved_bytes == 60 * 2**20  # from the cache
    with pytest.raises(torch.OutOfMemoryError, match=r"CUDA out of memory\. Tried"):
        gpu.allocate(60 * 2**20)
    gpu.other_bytes = 60 * 2**20  # a neighbour
    with pytest.raises(torch.OutOfMemoryError):
        gpu.allocate(20 * 2**20)
    gpu.free(kept)
    gpu.empty_cache()
    assert gpu.reserved_bytes == gpu.allocated_bytes == 40 * 2**20
    gpu.reset_peaks()
    assert gpu.peak_reserved_bytes == 40 * 2**20
