"""Snapshots that torch's own CUDA allocator wrote, read as a user's."""

import pytest
from batchadvisor.session.memory import analyze_memory

from tests.snapshots import CASES, pickled, snapshot_of

TRAININGS = [name for name, case in CASES.items() if case["model"]]
REFUSED = [name for name in TRAININGS if CASES[name]["until_refused"]]


@pytest.fixture
def device(request, tmp_path):
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickled(request.param))
    (device,) = analyze_memory(path).devices
    return device, snapshot_of(request.param)


@pytest.mark.parametrize("device", CASES, indirect=True)
def test_the_history_leads_to_the_state(device):
    seen, snapshot = device
    blocks = [block for segment in snapshot.segments for block in segment.blocks]
    assert seen.reserved_bytes == sum(block.size for block in blocks)
    assert seen.allocated_bytes == sum(block.size for block in blocks if block.active)
    assert seen.peak is not None, seen.unavailable
    assert seen.peak.num_bytes >= seen.requested_bytes
    assert max(seen.timeline.active_bytes) == seen.peak.num_bytes
    assert max(seen.timeline.reserved_bytes) >= seen.peak.num_bytes


@pytest.mark.parametrize("device", TRAININGS, indirect=True)
def test_lines_are_those_of_the_training(device):
    seen, _ = device
    files = {line.line.split(":")[0] for line in seen.peak.lines if line.line}
    assert "gpu_probes/six_models.py" in files


@pytest.mark.parametrize("device", REFUSED, indirect=True)
def test_the_request_that_failed(device):
    seen, snapshot = device
    failed = seen.out_of_memory
    (event,) = [event for event in snapshot.traces[0] if event.action == "oom"]
    assert failed.requested_bytes == event.size
    assert failed.line.startswith("gpu_probes/six_models.py")


@pytest.mark.parametrize(
    "device", [name for name in TRAININGS if name not in REFUSED], indirect=True
)
def test_a_steady_training_does_not_grow(device):
    seen, _ = device
    assert not seen.growth
    assert seen.out_of_memory is None
