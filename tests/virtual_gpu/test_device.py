"""The machine on paper keeps the laws of a real one."""

import pytest
import torch

from .device import Graph, VirtualGpu

MS = 1_000_000
MIB = 2**20


@pytest.fixture
def gpu():
    return VirtualGpu()


def test_the_host_runs_ahead_until_it_waits(gpu):
    for _ in range(9):
        gpu.launch(5)
    assert gpu.launch(5) == 1 + 50 * MS
    assert gpu.clock() == 1
    gpu.item()
    assert (gpu.clock(), gpu.busy_ns, gpu.num_waits) == (1 + 50 * MS, 50 * MS, 1)
    for _ in range(10):  # or it is the slower one
        gpu.clock.pass_ms(20)
        gpu.launch(5)
    gpu.synchronize()
    assert (gpu.clock(), gpu.busy_ns) == (1 + 255 * MS, 100 * MS)


def test_streams_share_the_engine_and_keep_their_order(gpu):
    side = gpu.stream()
    gpu.launch(5)
    gpu.launch(5, stream=side)
    assert side.tail_ns == 1 + 10 * MS
    side.synchronize()
    assert gpu.clock() == 1 + 10 * MS
    gpu.default_stream.wait_stream(side)
    assert gpu.default_stream.tail_ns == side.tail_ns


def test_a_full_queue_holds_the_host_and_a_graph_takes_one_place():
    gpu = VirtualGpu(depth=4)
    for _ in range(4):
        gpu.replay(Graph([1.0] * 10))
    assert gpu.clock() == 1
    for number in range(1, 100):  # in the long run the host is as fast as the device
        gpu.launch(10)
        assert gpu.clock() == 1 + number * 10 * MS


def test_an_event_is_passed_in_the_device_s_time(gpu):
    first, second, elsewhere = (gpu.event(enable_timing=True) for _ in range(3))
    first.record()
    gpu.launch(50)
    second.record()
    elsewhere.record(gpu.stream())
    assert [event.query() for event in (first, second, elsewhere)] == [True, False, True]
    with pytest.raises(RuntimeError, match="completed"):
        first.elapsed_time(second)
    gpu.clock.pass_ms(50)
    assert second.query()
    assert first.elapsed_time(second) == 50
    with pytest.raises(RuntimeError, match="enable_timing"):
        first.elapsed_time(gpu.event())


def test_memory():
    gpu = VirtualGpu(capacity_bytes=100 * MIB)
    kept = gpu.allocate(10 * MIB)
    gpu.free(gpu.allocate(50 * MIB))
    assert gpu.allocated_bytes == 10 * MIB
    assert gpu.reserved_bytes == gpu.peak_reserved_bytes == 60 * MIB
    gpu.allocate(40 * MIB)
    assert gpu.reserved_bytes == 60 * MIB  # from the cache
    gpu.capture(8, 10 * MIB)
    with pytest.raises(torch.OutOfMemoryError, match=r"10\.00 MiB allocated in private pools"):
        gpu.allocate(60 * MIB)
    gpu.other_bytes = 60 * MIB  # a neighbour
    with pytest.raises(torch.OutOfMemoryError, match=r"CUDA out of memory\. Tried"):
        gpu.allocate(20 * MIB)
    gpu.free(kept)
    gpu.empty_cache()
    gpu.reset_peaks()
    assert gpu.allocated_bytes == 40 * MIB
    assert gpu.reserved_bytes == gpu.peak_reserved_bytes == 50 * MIB
