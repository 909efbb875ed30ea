"""The replicas of torch's CUDA allocator against what torch's own did: the same addresses.

The snapshots are of torch's allocator itself, on a stand-in for a GPU (`scripts/software_gpu`).
"""

import pytest
from batchadvisor.advisor.gpu_memory.caching_allocator import (
    CachingAllocator,
    NoMemoryError,
    rounded,
)
from batchadvisor.advisor.gpu_memory.expandable_segments import ExpandableAllocator
from batchadvisor.features.estimate.fit.forecast import reserved_bytes

from tests.snapshots import CASES, snapshot_of

ROOMY = [name for name, case in CASES.items() if case["capacity_bytes"] > 64 << 30]


@pytest.mark.parametrize("name", CASES)
def test_each_request_gets_torchs_address(name):
    case, snapshot = CASES[name], snapshot_of(name)
    events = snapshot.traces[0]
    kind = ExpandableAllocator if case["expandable"] else CachingAllocator
    allocator = kind(case["capacity_bytes"])
    first = next(event.address for event in events if event.action.startswith("segment_"))
    keys, num_refused = {}, 0
    for number, event in enumerate(events):
        if event.action == "alloc":
            allocator.allocate(number, rounded(event.size))
            assert allocator.place(number) == event.address - first, number
            keys[event.address] = number
        elif event.action == "free_completed":
            allocator.free(keys.pop(event.address))
        elif event.action == "oom":
            num_refused += 1
            with pytest.raises(NoMemoryError):
                allocator.allocate(number, rounded(event.size))
    assert number > 500
    assert allocator.reserved_bytes == sum(segment.size for segment in snapshot.segments)
    assert (num_refused > 0) is (name not in ROOMY)


@pytest.mark.parametrize("name", ROOMY)
def test_as_much_is_reserved_as_by_torch(name):
    snapshot = snapshot_of(name)
    numbers, requests, num_requests = {}, [], 0
    for event in snapshot.traces[0]:
        if event.action == "alloc":
            num_requests += 1
            numbers[event.address] = num_requests
            requests.append(event.size)
        elif event.action == "free_completed":
            requests.append(-numbers.pop(event.address))
    expandable = CASES[name]["expandable"]
    reserved = sum(segment.size for segment in snapshot.segments)
    assert reserved_bytes(requests, expandable=expandable) == reserved
