"""The largest size on planted capacities: limits, refusals, neighbours, parts of a GPU, ECC."""

import pytest
from batchadvisor.probes.nvml.windows import GPM_SHORTEST_S

from .allocator import MIB
from .device import VirtualGpu
from .machine import timed
from .script import Script, truth_of
from .test_truths import EAGER

GIB = 1024 * MIB
CONTEXT_BYTES = 400 * MIB
REFUSALS = {
    "the allocator": "",
    "the runtime": "CUDA error: out of memory",
    "Triton": "Triton Error [CUDA]: out of memory",
    "cuFFT": "cuFFT error: CUFFT_ALLOC_FAILED",
    "cuBLAS": "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "cuDNN of a batch that is too large": "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may "
    "appear if you passed in a non-contiguous input.",
    "hipBLAS": "CUDA error: HIPBLAS_STATUS_ALLOC_FAILED when calling `hipblasCreate(handle)`",
}


def gpu_of(capacity_bytes=16 * GIB):
    gpu = VirtualGpu(**EAGER, capacity_bytes=capacity_bytes)
    gpu.other_bytes = CONTEXT_BYTES
    return gpu


def outcomes(result):
    return [(trial.batch_size, trial.outcome) for trial in result.record.trials]


def largest_of(result, script, room_bytes, *, share=0.85):
    """The answer; it fits, and is no less than this share of the largest that does."""
    best = script.largest(room_bytes)
    size = result.advice.recommended.batch_size
    assert share * best <= size <= best, outcomes(result)


@pytest.mark.parametrize("who", REFUSALS)
def test_a_refusal_beyond_what_was_seen(machine, tmp_path, who):
    """A workspace that only large batches need: the step up into it is refused."""
    script = Script(jump=(300, 6 * GIB), refusal=REFUSALS[who])
    result = machine(gpu_of(), script).run(tmp_path, kind="memory")
    refused = [trial for trial in result.record.trials if trial.outcome == "out_of_memory"]
    assert refused
    assert all(trial.batch_size >= 300 for trial in refused)
    assert (REFUSALS[who] or "CUDA out of memory").splitlines()[0] in refused[0].detail
    largest_of(result, script, 0.95 * (16 * GIB - CONTEXT_BYTES))


@pytest.mark.parametrize("kind", ["memory", "throughput"])
def test_a_limit_of_the_user_s(machine, tmp_path, kind):
    script = Script(jump=(150, 3 * GIB))
    gpu = gpu_of()
    result = machine(gpu, script).run(tmp_path, kind=kind, limit_bytes=8 * GIB)
    assert result.record.device.capacity_bytes == 8 * GIB
    assert result.record.device.capacity_source == "--memory-limit"
    largest_of(result, script, 0.95 * 8 * GIB, share=0.85 if kind == "memory" else 0.7)


@pytest.mark.parametrize("ecc", ["on", "off"])
def test_memory_that_ecc_takes(machine, tmp_path, ecc):
    """Cards without memory of its own for it lose a sixteenth."""
    capacity = 15 * GIB if ecc == "on" else 16 * GIB
    result = machine(gpu_of(capacity), Script()).run(tmp_path, kind="memory")
    assert result.record.device.total_bytes == capacity
    assert result.record.device.capacity_bytes == capacity - CONTEXT_BYTES
    largest_of(result, Script(), 0.95 * (capacity - CONTEXT_BYTES), share=0.93)


class TestANeighbour:
    """Another process takes memory in the middle of the run."""

    @staticmethod
    def comes(gpu):
        gpu.other_bytes += 6 * GIB
        gpu.has_neighbour = True

    @pytest.mark.parametrize(
        ("kind", "at_s"),
        [("memory", 3.4), ("memory", 5.0), ("throughput", 5.0), ("throughput", 9.0), ("knee", 20)],
    )
    def test_the_answer_fits_beside_it(self, machine, tmp_path, kind, at_s):
        script = Script()
        gpu = gpu_of()
        result = machine(gpu, script, at={at_s: self.comes}).run(tmp_path, kind=kind)
        assert gpu.has_neighbour
        largest_of(result, script, 0.95 * (10 * GIB - CONTEXT_BYTES), share=0.8)
        assert result.record.device.capacity_bytes == 10 * GIB - CONTEXT_BYTES

    def test_it_is_named(self, machine, tmp_path):
        result = machine(gpu_of(), Script(), at={9.0: self.comes}).run(tmp_path)
        doubts = {doubt for trial in result.record.trials for doubt in trial.doubts}
        assert any(doubt.startswith("other processes on the GPU") for doubt in doubts)
        for trial in timed(result.record):
            truth = truth_of(Script(), gpu_of(), trial.batch_size)
            assert trial.step_s.median == pytest.approx(truth.step_s, rel=0.02)


class TestAPart:
    """A MIG instance: its own memory, and the counters that the driver keeps of parts."""

    UUID = "00000000-1111-2222-3333-444444444441"

    @pytest.fixture
    def part(self, machine, stub, monkeypatch):
        stub.set(mig=1, parts=2)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"MIG-{self.UUID}")
        return machine(gpu_of(5 * GIB), Script(), uuid=self.UUID)

    def test_its_memory(self, part, tmp_path):
        result = part.run(tmp_path, kind="memory")
        assert result.record.device.uuid == f"MIG-{self.UUID}"
        largest_of(result, Script(), 0.95 * (5 * GIB - CONTEXT_BYTES), share=0.9)

    def test_its_counters(self, part, tmp_path):
        result = part.run(tmp_path)
        for trial in timed(result.record):
            truth = truth_of(Script(), gpu_of(5 * GIB), trial.batch_size)
            assert trial.step_s.median == pytest.approx(truth.step_s, rel=0.02)
            assert trial.samples_per_joule is None
            assert "Not Supported" in trial.counters.unavailable["energy_j"]
        long = [each for each in timed(result.record) if each.counters.window_s > GPM_SHORTEST_S]
        # As the stand-in tells of this part.
        assert {trial.counters.sm_active_pct for trial in long} == {53}
        assert result.advice.recommended is not None
