"""The occupancy calculation against NVIDIA's published limits and Kineto's own figures."""

import numpy as np
import pytest
from batchadvisor.probes.trace import kineto_names, occupancy
from batchadvisor.probes.trace.columns import DeviceProperties
from batchadvisor.probes.trace.reader import read_trace
from msgspec.structs import replace

A100 = DeviceProperties(
    name="A100",
    compute_capability=(8, 0),
    num_sms=108,
    max_threads_per_sm=2048,
    registers_per_sm=65536,
    shared_bytes_per_sm=167936,
    warp_size=32,
)


def resident(device, threads, registers, shared):
    columns = (np.array([value]) for value in (threads, registers, shared))
    return int(occupancy.resident_blocks(device, *columns)[0])


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "blocks", "limit"),
    [
        (256, 32, 0, 8, "threads"),
        (32, 16, 0, 32, "blocks"),
        (256, 64, 0, 4, "registers"),
        (256, 255, 0, 1, "registers"),
        (1024, 65, 0, 0, "registers: such a kernel cannot start"),
        (128, 32, 49152, 3, "shared memory, 1 KiB of each block is the system's"),
        (128, 128, 73728, 2, "shared memory above 48 KiB"),
        (33, 32, 0, 32, "a warp begun is a warp used"),
    ],
)
def test_each_limit(threads, registers, shared, blocks, limit):
    assert resident(A100, threads, registers, shared) == blocks, limit


@pytest.mark.parametrize(
    ("capability", "most_threads", "blocks"),
    [
        ((7, 5), 1024, 16),
        ((8, 6), 1536, 16),
        ((8, 9), 1536, 24),
        ((9, 0), 2048, 32),
        ((12, 0), 1536, 24),
    ],
)
def test_most_blocks_by_compute_capability(capability, most_threads, blocks):
    changes = {"compute_capability": capability, "max_threads_per_sm": most_threads}
    assert resident(replace(A100, **changes), 32, 16, 0) == blocks


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"compute_capability": (13, 0)}, "compute capability"),
        ({"warp_size": 64}, "NVIDIA"),
        ({"num_sms": None}, "limits"),
    ],
)
def test_unknown_devices_are_refused_with_a_reason(change, word):
    assert word in occupancy.why_unknown(replace(A100, **change))
    assert occupancy.why_unknown(A100) is None
    assert "describe" in occupancy.why_unknown(None)


def test_recorded_kernels_agree_within_a_point(recorded, expected):
    """Every figure that Kineto wrote, other than its 0, is ours rounded."""
    checked = false_zeros = 0
    for name, entry in expected["traces"].items():
        if "ref" not in entry:
            continue
        trace = read_trace(recorded / name)
        for number, device in trace.devices.items():
            rows = (trace.gpu.device == number) & (trace.gpu.kind == kineto_names.KERNEL)
            kernels = trace.gpu.select(rows)
            ours = occupancy.achieved_pct(kernels, device)
            written = np.isfinite(ours) & (kernels.occupancy_pct > 0)
            assert np.abs(ours - kernels.occupancy_pct)[written].max(initial=0) <= 0.5 + 1e-9
            checked += int(written.sum())
            large = kernels.shared_bytes > 48 * 1024
            assert not (kernels.occupancy_pct[large] > 0).any(), "Kineto's defect, no exception"
            false_zeros += int((np.isfinite(ours) & large).sum())
    assert checked > 10_000
    assert false_zeros > 1_000


def corrected_pct(write, **args):
    """Of one kernel of 432 blocks with 128 threads on an A100."""
    args = {"device": 0, "stream": 7, "grid": [432, 1, 1], "block": [128, 1, 1]} | args
    event = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 5}
    (pct,) = occupancy.corrected_pct(read_trace(write([event | {"args": args}])).gpu, A100)
    return pct


def test_zero_of_kineto_is_replaced(write):
    """Synthetic: a kernel with 72 KiB of shared memory, for which Kineto writes 0."""
    kernel = {"registers per thread": 128, "shared memory": 73728, "est. achieved occupancy %": 0}
    assert corrected_pct(write, **kernel) == 100 * 2 * 128 / 2048


def test_limits_under_which_a_kernel_could_not_run_are_not_believed(write):
    assert np.isnan(corrected_pct(write, **{"registers per thread": 32, "shared memory": 200_000}))
