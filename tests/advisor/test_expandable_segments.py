"""What torch's allocator would reserve with segments that grow."""

from random import Random

from batchadvisor.advisor.gpu_memory.caching_allocator import rounded
from batchadvisor.features.estimate.fit.reserved_memory import fits, reserved_bytes

MIB = 1 << 20


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
        generator, live, requests, most = Random(0), {}, [], 0
        for number in range(1, 400):
            size = generator.choice((512, 70_000, 3 * MIB, 12 * MIB, 33 * MIB))
            requests.append(size)
            live[number] = size
            most = max(most, sum(rounded(each) for each in live.values()))
            if generator.random() < 0.6:
                gone = generator.choice(sorted(live))
                requests.append(-gone)
                del live[gone]
        assert most <= reserved_bytes(requests, expandable=True) < 1.5 * most
