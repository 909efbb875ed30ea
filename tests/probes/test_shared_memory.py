"""Segments of shared memory that a process holds."""

import mmap
import os
from pathlib import Path

import pytest
from batchadvisor.probes.process.process_group import segments_held_by, shared_segments


@pytest.mark.parametrize("name", [b"batchadvisor-test", b"batchadvisor-test-caf\xe9"])
def test_a_mapped_segment_is_found_by_its_name(name):
    path = b"/dev/shm/%s-%d" % (name, os.getpid())
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        os.ftruncate(descriptor, mmap.PAGESIZE)
        with mmap.mmap(descriptor, mmap.PAGESIZE):
            os.close(descriptor)
            held = segments_held_by([os.getpid()])
        assert os.fsdecode(path) in held & shared_segments()
    finally:
        Path(os.fsdecode(path)).unlink()
