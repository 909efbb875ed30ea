"""Snapshots of a simulated allocator: the numbers are those that it counted itself."""

import pickle

import pytest
from batchadvisor.session.memory import analyze_memory

from .allocator import MIB, Allocator, NoMemoryError, frame, train, user


def analysis_of(tmp_path, snapshot):
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(snapshot))
    return analyze_memory(path)


def device_of(tmp_path, snapshot):
    return analysis_of(tmp_path, snapshot).devices[0]


class TestState:
    def test_totals_are_those_of_the_allocator(self, tmp_path):
        device = Allocator()
        train(device, 4, leak=5000)
        seen = device_of(tmp_path, device.snapshot())
        assert seen.reserved_bytes == device.reserved
        assert seen.allocated_bytes == device.allocated
        assert seen.requested_bytes == device.requested
        assert seen.rounding_bytes == device.allocated - device.requested
        free = seen.inactive_split_bytes + seen.cached_bytes
        assert free == device.reserved - device.allocated
        lines = {line.line: line.num_bytes for line in seen.lines}
        assert lines == {
            "job/train.py:30": 6 * 8 * MIB,
            "job/train.py:10": 6 * (4 * MIB + 100),
            "job/train.py:41": 4 * 5000,
        }
        assert {share.category: share.num_bytes for share in seen.categories} == {
            "optimizer": 6 * 8 * MIB,
            "parameters": 6 * (4 * MIB + 100),
            "unknown": 4 * 5000,
        }

    def test_awaiting_blocks_are_told_apart(self, tmp_path):
        device = Allocator()
        first, _ = device.malloc(4 * MIB, user(1)), device.malloc(4 * MIB, user(2))
        device.free(first, late=True)
        seen = device_of(tmp_path, device.snapshot())
        assert (seen.allocated_bytes, seen.awaiting_bytes) == (4 * MIB, 4 * MIB)

    def test_streams_have_their_own_rows(self, tmp_path):
        device = Allocator()
        device.malloc(4 * MIB, user(1))
        device.malloc(30 * MIB, user(1), stream=7)
        pools = device_of(tmp_path, device.snapshot()).pools
        rows = [(pool.stream, pool.reserved_bytes) for pool in pools]
        assert rows == [(7, 30 * MIB), (0, 20 * MIB)]

    def test_an_older_version(self, tmp_path):
        history = [{"real_size": 700, "frames": [frame("/a/b.py", 3, "f")]}]
        blocks = [
            {"size": 1024, "state": "active_allocated", "history": history},
            {"size": 1024, "state": "inactive"},
        ]
        segment = {"address": 4096, "total_size": 2048, "stream": 0, "blocks": blocks}
        seen = device_of(tmp_path, [{**segment, "device": 0}])
        assert (seen.requested_bytes, seen.expandable) == (700, None)
        assert seen.lines[0].line == "a/b.py:3"
        assert "no history" in seen.unavailable["peak"]

    def test_two_devices(self, tmp_path):
        first, second = Allocator(), Allocator()
        train(first, 1)
        second.malloc(3 * MIB, user(1))
        devices = analysis_of(tmp_path, first.snapshot(second)).devices
        assert [device.reserved_bytes for device in devices] == [first.reserved, second.reserved]
        assert devices[1].peak.num_bytes == second.peak


class TestPeak:
    @pytest.mark.parametrize("steps", [1, 5])
    def test_it_is_the_allocators(self, tmp_path, steps):
        device = Allocator()
        train(device, steps, leak=5000)
        peak = device_of(tmp_path, device.snapshot()).peak
        assert peak.num_bytes == device.peak
        assert {line.line: line.num_bytes for line in peak.lines} == dict(device.peak_lines)
        assert peak.before_bytes == 0

    def test_a_history_that_begins_late_gives_the_same_level(self, tmp_path):
        device = Allocator()
        train(device, 5)
        snapshot = device.snapshot()
        snapshot["device_traces"][0] = device.events[len(device.events) // 2 :]
        peak = device_of(tmp_path, snapshot).peak
        assert peak.num_bytes == device.peak
        assert peak.before_bytes > 0

    def test_a_history_of_something_else_is_not_believed(self, tmp_path):
        device, other = Allocator(), Allocator()
        train(device, 2)
        train(other, 2)
        other.next += 1
        snapshot = device.snapshot()
        snapshot["device_traces"][0] = [
            {**event, "addr": event.get("addr", 0) + 64} for event in other.events
        ]
        seen = device_of(tmp_path, snapshot)
        assert seen.peak is None
        assert "does not lead to the state" in seen.unavailable["peak"]


class TestGrowth:
    @pytest.mark.parametrize("leak", [0, 600, 3 * MIB])
    def test_a_leak_is_named_with_its_size(self, tmp_path, leak):
        device = Allocator()
        train(device, 8, leak=leak)
        seen = device_of(tmp_path, device.snapshot())
        assert seen.num_steps == 8
        grown = [(line.line, line.bytes_per_step) for line in seen.growth]
        assert grown == ([("job/train.py:41", leak)] if leak else [])

    def test_annotations_come_first(self, tmp_path):
        device, notes = Allocator(), []
        for number in range(6):
            note = {"name": f"ProfilerStep#{number}", "device": 0}
            notes.append({**note, "stage": "START", "time_us": device.time})
            device.malloc(1000, user(41))
            notes.append({**note, "stage": "END", "time_us": device.time})
        seen = device_of(tmp_path, device.snapshot(external_annotations=notes))
        assert seen.step_source == "the profiler's steps"
        assert [line.bytes_per_step for line in seen.growth] == [1000]

    def test_four_steps_are_too_few(self, tmp_path):
        device = Allocator()
        train(device, 4, leak=900)
        seen = device_of(tmp_path, device.snapshot())
        assert seen.growth == ()
        assert "fewer than 5 steps" in seen.unavailable["growth"]


def fragmented(expandable=False):
    """100 MiB in blocks of 5, every second one free; then 30 at once are asked for."""
    device = Allocator(capacity=100 * MIB, expandable=expandable)
    addresses = [device.malloc(5 * MIB, user(5)) for _ in range(20)]
    for address in addresses[::2]:
        device.free(address)
    with pytest.raises(NoMemoryError):
        device.malloc(30 * MIB, user(6))
    return device, addresses


class TestOutOfMemory:
    def test_fragmentation_is_the_cause(self, tmp_path):
        device, _ = fragmented()
        analysis = analysis_of(tmp_path, device.snapshot())
        failed = analysis.devices[0].out_of_memory
        assert failed.fragmentation
        assert failed.exact
        assert (failed.requested_bytes, failed.free_bytes) == (30 * MIB, 50 * MIB)
        assert (failed.largest_free_bytes, failed.device_free_bytes) == (5 * MIB, 0)
        assert failed.line == "job/train.py:6"
        assert [cut.rule for cut in analysis.cuts] == ["fragmentation"]
        assert "expandable_segments:True" in analysis.cuts[0].remedy
        assert not analysis.cuts[0].tried

    def test_segments_that_expand_already_get_no_such_remedy(self, tmp_path):
        device, _ = fragmented(expandable=True)
        assert analysis_of(tmp_path, device.snapshot()).cuts == ()

    def test_what_came_after_is_led_back(self, tmp_path):
        device, addresses = fragmented()
        for address in addresses[1::2]:
            device.free(address)
        device.empty_cache()
        failed = device_of(tmp_path, device.snapshot()).out_of_memory
        assert failed.fragmentation
        assert not failed.exact
        assert (failed.free_bytes, failed.largest_free_bytes) == (50 * MIB, 5 * MIB)

    def test_too_little_is_no_fragmentation(self, tmp_path):
        device = Allocator(capacity=100 * MIB)
        for _ in range(20):
            device.malloc(5 * MIB, user(5))
        with pytest.raises(NoMemoryError):
            device.malloc(30 * MIB, user(6))
        analysis = analysis_of(tmp_path, device.snapshot())
        failed = analysis.devices[0].out_of_memory
        assert (failed.fragmentation, failed.free_bytes) == (False, 0)
        assert analysis.cuts == ()


def test_growth_and_the_optimizer_are_cuts(tmp_path):
    device = Allocator()
    for _ in range(3):
        device.malloc(30 * MIB, user(10))
    train(device, 8, leak=MIB)
    for _ in range(2):
        device.malloc(40 * MIB, user(31, "main", frame("/x/torch/optim/adam.py", 9, "step")))
    cuts = analysis_of(tmp_path, device.snapshot()).cuts
    assert [cut.rule for cut in cuts] == ["growth", "optimizer"]
    assert "job/train.py:41 (main) grew by 1 MiB a step over 6 steps" in cuts[0].message


def test_no_stacks_says_what_to_record(tmp_path):
    device = Allocator()
    device.malloc(18 * MIB, [])
    analysis = analysis_of(tmp_path, device.snapshot())
    assert 'stacks="python"' in analysis.notes[0]
    assert analysis.cuts == ()


def test_torchs_own_reader_agrees(tmp_path):
    """`segsum` and `calc_active` of torch count the same; `trace` takes the events."""
    _memory_viz = pytest.importorskip("torch.cuda._memory_viz")

    device = Allocator()
    train(device, 6, leak=5000)
    snapshot = device.snapshot()
    seen = device_of(tmp_path, snapshot)
    assert sum(map(_memory_viz.calc_active, snapshot["segments"])) == seen.allocated_bytes
    text = _memory_viz.segsum(snapshot)
    assert f"total_reserved: {_memory_viz.Bytes(seen.reserved_bytes)}" in text
    assert f"total_allocated: {_memory_viz.Bytes(seen.requested_bytes)}" in text
    free = seen.inactive_split_bytes + seen.cached_bytes
    assert f"total_free: {_memory_viz._report_free(free, seen.rounding_bytes)}" in text
    assert f"{seen.num_events} entries" in _memory_viz.trace(snapshot)
