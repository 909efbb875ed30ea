"""What torch's allocator of CUDA memory would reserve for a step, also with segments that grow."""

import random
from itertools import pairwise

import pytest
from batchadvisor.advisor.gpu_memory.caching_allocator import (
    CachingAllocator,
    NoMemoryError,
    rounded,
)
from batchadvisor.features.estimate.fit.forecast import fits, reserved_bytes

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def reserved(*requests, capacity=8 * GIB):
    """Bytes of the segments after these requests; -n gives the n-th back."""
    allocator = CachingAllocator(capacity)
    allocator.serve(requests)
    return allocator.reserved_bytes


@pytest.mark.parametrize(
    ("size", "segment"),
    [
        (512, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 512, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (11 * MIB, 12 * MIB),
        (100 * MIB + 512, 102 * MIB),
    ],
)
def test_the_segment_of_a_first_request(size, segment):
    assert reserved(size) == segment


def test_small_requests_share_a_segment_of_their_own():
    assert reserved(*[512] * 4096) == 2 * MIB
    assert reserved(*[512] * 4097) == 4 * MIB
    assert reserved(3 * MIB, MIB) == 22 * MIB


def test_the_rest_of_a_large_block_is_used_if_it_is_more_than_a_mebibyte():
    assert reserved(12 * MIB, -1, 11 * MIB, 2 * MIB) == 32 * MIB  # a rest of 1 MiB stays with it
    assert reserved(12 * MIB, -1, 10 * MIB, 2 * MIB) == 12 * MIB


def test_freed_neighbours_become_a_block_again():
    three = (6 * MIB, 6 * MIB, 6 * MIB)
    assert reserved(*three, -1, -2, 12 * MIB) == 20 * MIB
    assert reserved(*three, -1, -3, 12 * MIB) == 32 * MIB  # the middle still lives
    assert reserved(*three, -1, -3, -2, 18 * MIB) == 20 * MIB


def test_the_smallest_block_that_is_large_enough_serves():
    # 30 is served from 32, so that 40 still finds its own.
    assert reserved(40 * MIB, 32 * MIB, -1, -2, 30 * MIB, 40 * MIB) == 72 * MIB


def test_idle_segments_are_given_back_when_memory_is_short():
    assert reserved(40 * MIB, -1, 60 * MIB, capacity=80 * MIB) == 60 * MIB
    # A segment that is in use in part stays whole.
    with pytest.raises(NoMemoryError):
        reserved(20 * MIB, 20 * MIB, -1, 14 * MIB, 60 * MIB, capacity=80 * MIB)


def test_whether_requests_fit():
    assert fits([30 * MIB, 30 * MIB, -1, 30 * MIB], 60 * MIB)
    assert not fits([30 * MIB, 30 * MIB, 30 * MIB, -1], 60 * MIB)
    assert fits([1], 2 * MIB)
    assert not fits([1], 2 * MIB - 1)


@pytest.mark.parametrize("seed", range(30))
def test_any_requests(seed):
    """Reserved memory holds what lives, live blocks do not overlap, and all comes back."""
    draw = random.Random(seed)
    allocator = CachingAllocator(64 * GIB)
    alive, live_bytes = {}, 0
    for number in range(1, 600):
        if alive and draw.random() < 0.45:
            key = draw.choice(list(alive))
            allocator.free(key)
            live_bytes -= alive.pop(key)
        else:
            size = 512 * draw.randint(1, draw.choice((8, 4096, 40_000, 400_000)))
            allocator.allocate(number, size)
            alive[number] = size
            live_bytes += size
        assert allocator.reserved_bytes >= live_bytes
        blocks = sorted((b.place, b.size) for b in allocator._taken.values())
        assert all(place + size <= following for (place, size), (following, _) in pairwise(blocks))
    for key in alive:
        allocator.free(key)
    idle = [block for pool in allocator._free for _, _, block in pool]
    assert sum(block.size for block in idle) == allocator.reserved_bytes
    assert all(block.before is None is block.after for block in idle)


class TestExpandableSegments:
    def test_a_segment_grows_by_pages(self):
        assert reserved_bytes([512], expandable=True) == 2 * MIB
        assert reserved_bytes([30 * MIB], expandable=True) == 40 * MIB
        # What is free at the end is part of what comes next.
        assert reserved_bytes([30 * MIB, 15 * MIB], expandable=True) == 60 * MIB
        assert reserved_bytes([30 * MIB, -1, 50 * MIB], expandable=True) == 60 * MIB

    def test_growing_tensors_leave_no_holes(self):
        """Each needs a segment of its own without; with, the same one grows."""
        requests = []
        for number in range(1, 11):
            requests += [40 * number * MIB, -number]
        assert reserved_bytes(requests) == sum(40 * number for number in range(1, 11)) * MIB
        assert reserved_bytes(requests, expandable=True) == 400 * MIB
        assert fits(requests, 400 * MIB, expandable=True)
        assert not fits(requests, 399 * MIB, expandable=True)

    def test_never_less_than_what_lives(self):
        draw, live, requests, most = random.Random(0), {}, [], 0
        for number in range(1, 400):
            live[number] = draw.choice((512, 70_000, 3 * MIB, 12 * MIB, 33 * MIB))
            requests.append(live[number])
            most = max(most, sum(map(rounded, live.values())))
            if draw.random() < 0.6:
                gone = draw.choice(sorted(live))
                requests.append(-gone)
                del live[gone]
        assert most <= reserved_bytes(requests, expandable=True) < 1.5 * most
