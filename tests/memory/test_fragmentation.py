"""Free memory that requests cannot have, by its kind, and options that work against each other."""

import pickle
from pathlib import Path

import pytest
from batchadvisor.advisor.gpu_memory.caching_allocator import CachingAllocator
from batchadvisor.advisor.gpu_memory.expandable_segments import ExpandableAllocator
from batchadvisor.errors import UsageError
from batchadvisor.probes.memory.snapshot import read_snapshot
from batchadvisor.session.memory import analyze_memory

from .allocator import MIB, Allocator, user
from .test_analysis import analysis_of

MADE = Path(__file__).parents[3] / "shared" / "made_traces"
START = 0x7F00_0000_0000


def made(name):
    if not (MADE / name).exists():
        pytest.skip(f"the made snapshots are not at {MADE}")
    return MADE / name


def segment(sizes, *, stream=0, expandable=True, start=START):
    """A segment of blocks: sizes in bytes, the free ones negative."""
    blocks, at = [], start
    for size in sizes:
        state = "inactive" if size < 0 else "active_allocated"
        blocks.append({"address": at, "size": abs(size), "requested_size": abs(size),
                       "state": state, "frames": user(10)})  # fmt: skip
        at += abs(size)
    return {
        "device": 0, "address": start, "total_size": at - start, "stream": stream,
        "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": expandable,
        "frames": [], "blocks": blocks,
    }  # fmt: skip


def analysed(tmp_path, *segments, **settings):
    snapshot = {"segments": list(segments), "device_traces": [[]], "allocator_settings": settings}
    return analysis_of(tmp_path, snapshot)


CONF = {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128,expandable_segments:True"}
NEWER = {"PYTORCH_ALLOC_CONF": "max_split_size_mb:64"}
SIZE = {"max_split_size": 128 * MIB, "expandable_segments": True}


class TestSplitLimit:
    @pytest.mark.parametrize("settings", [CONF, NEWER, SIZE, {**CONF, **SIZE}], ids=str)
    @pytest.mark.parametrize("live", [2, 40])
    def test_the_replica_proves_the_remedy(self, tmp_path, settings, live):
        sizes = [-137 * MIB, live * MIB] * 50
        (cut,) = analysed(tmp_path, segment(sizes), **settings).cuts
        assert cut.rule == "fragmentation.split_limit"
        assert cut.num_bytes == 50 * 137 * MIB
        assert "leave max_split_size_mb out" in cut.remedy
        assert "without max_split_size_mb 0 B" in cut.evidence

    @pytest.mark.parametrize(
        ("sizes", "settings"),
        [
            ([-100 * MIB, 2 * MIB] * 50, CONF),
            ([-137 * MIB, 2 * MIB] * 50, {"max_split_size": -1, "expandable_segments": True}),
            ([-137 * MIB, 140 * MIB] * 50, {"PYTORCH_CUDA_ALLOC_CONF": ""}),
            ([-137 * MIB, 2 * MIB], CONF),
        ],
        ids=["pieces below the limit", "no limit", "nothing set", "little"],
    )
    def test_nothing_is_said_where_it_costs_nothing(self, tmp_path, sizes, settings):
        assert analysed(tmp_path, segment(sizes), **settings).cuts == ()

    def test_a_block_that_no_device_has(self, tmp_path):
        """The file says so, and the numbers do not contradict each other."""
        assert analysed(tmp_path, segment([-137 * MIB, 1 << 52]), **SIZE).devices[0].split_limit

    @pytest.mark.parametrize("kind", [CachingAllocator, ExpandableAllocator])
    def test_the_rules_of_torch(self, kind):
        """A block at the limit serves requests of nearly its size alone."""
        allocator = kind(1 << 40)
        allocator.max_split_bytes = 128 * MIB
        allocator.allocate(1, 200 * MIB)
        allocator.allocate(2, 2 * MIB)
        allocator.free(1)
        reserved = allocator.reserved_bytes
        allocator.allocate(3, 190 * MIB)
        assert allocator.reserved_bytes == reserved
        allocator.free(3)
        for key, size in ((4, 100 * MIB), (5, 150 * MIB)):
            allocator.allocate(key, size)
            assert allocator.reserved_bytes > reserved
            reserved = allocator.reserved_bytes

    def test_the_made_snapshot(self):
        (cut,) = analyze_memory(made("maxsplit_expandable.pickle")).cuts
        assert "13.33 GiB are free in blocks" in cut.message
        assert "leave max_split_size_mb out" in cut.remedy


class TestKinds:
    def test_live_blocks_between(self, tmp_path):
        sizes = [-18 * MIB, 2 * MIB] * 30
        (cut,) = analysed(tmp_path, segment(sizes, expandable=False)).cuts
        assert cut.rule == "fragmentation"
        assert "live blocks stand between" in cut.message

    @pytest.mark.parametrize("number", [15, 40])
    def test_segments_that_never_merge(self, tmp_path, number):
        whole = [
            segment([-20 * MIB], expandable=False, start=START + n * 64 * MIB)
            for n in range(number)
        ]
        used = segment([100 * MIB], expandable=False, start=START + (1 << 40))
        (cut,) = analysed(tmp_path, used, *whole).cuts
        assert cut.rule == "fragmentation.segments"
        assert f"in {number} whole segments, which never merge" in cut.message
        assert "one torch.cuda.empty_cache()" in cut.remedy

    @pytest.mark.parametrize("expandable", [True, False])
    def test_idle_segments_of_a_side_stream(self, tmp_path, expandable):
        main = segment([900 * MIB], expandable=expandable)
        side = segment([-700 * MIB, 2 * MIB], stream=0x55D0, expandable=True,
                       start=START + (1 << 40))  # fmt: skip
        rules = {cut.rule: cut for cut in analysed(tmp_path, main, side).cuts}
        cut = rules["fragmentation.stream"]
        assert "700 MiB lie idle on the side stream 0x55d0" in cut.message
        assert "fragmentation.segments" not in rules

    def test_a_side_stream_that_works_is_left_alone(self, tmp_path):
        side = segment([-300 * MIB, 600 * MIB], stream=7, start=START + (1 << 40))
        assert analysed(tmp_path, segment([900 * MIB]), side).cuts == ()


class TestAddresses:
    @pytest.mark.parametrize("start", [(1 << 63) + 4096, (1 << 64) - (1 << 40), (1 << 63) - 4096])
    def test_above_half_of_all(self, tmp_path, start):
        device = Allocator()
        device.next = start
        device.free(device.malloc(30 * MIB, user(5)))
        device.malloc(20 * MIB, user(6))
        (seen,) = analysis_of(tmp_path, device.snapshot()).devices
        assert (seen.allocated_bytes, seen.num_events) == (20 * MIB, 5)
        assert seen.peak.num_bytes == 30 * MIB

    def test_the_made_snapshot(self):
        (seen,) = analyze_memory(made("xpu_snapshot.pickle")).devices
        assert (seen.reserved_bytes, seen.allocated_bytes) == (128 * MIB, 100 * MIB)

    def test_an_address_beyond_64_bits_is_refused(self, tmp_path):
        path = tmp_path / "snapshot.pickle"
        path.write_bytes(pickle.dumps({"segments": [segment([MIB], start=1 << 65)]}))
        with pytest.raises(UsageError, match="no size or address") as error:
            read_snapshot(path)
        assert "not written by torch" not in str(error.value)
