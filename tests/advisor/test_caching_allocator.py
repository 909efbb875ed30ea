"""What torch's allocator of CUDA memory would reserve for the requests of a step."""

import random
from itertools import pairwise

import pytest
from batchadvisor.advisor.gpu_memory.caching_allocator import CachingAllocator, NoMemoryError
from batchadvisor.features.estimate.fit.reserved_memory import fits

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def reserved(*requests, capacity=8 * GIB):
    """Bytes of the segments after these requests; -n gives the n-th back."""
    allocator, number = CachingAllocator(capacity), 0
    for request in requests:
        if request > 0:
            number += 1
            allocator.allocate(number, request)
        else:
            allocator.free(-request)
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


def test_small_requests_share_a_segment():
    assert reserved(*[MIB] * 2) == 2 * MIB
    assert reserved(*[512] * 4096) == 2 * MIB
    assert reserved(*[512] * 4097) == 4 * MIB


def test_small_and_large_requests_share_none():
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
