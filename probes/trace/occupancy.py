"""The CUDA occupancy calculation: how many blocks of a kernel fit on a multiprocessor.

Kineto writes an achieved occupancy beside each kernel, rounded to a whole percent, and writes 0
for every kernel with more than 48 KiB of shared memory, because it asks CUDA without the opt-in
for larger blocks. Those are the matrix products and attention kernels. This recomputes the figure
from grid, block, registers and shared memory.

The allocation rules are those of NVIDIA's CUDA programming guide, appendix "Compute
Capabilities", and of its occupancy calculator: registers are given to warps in units of 256,
evenly over four partitions; shared memory in units of 128 or 256 bytes, and from compute
capability 8.0 on 1 KiB of each block's shared memory is the system's.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .columns import Activities, DeviceProperties
from .intervals import Floats, Ints

_MOST_BLOCKS = {
    (5, 0): 32, (5, 2): 32, (5, 3): 32, (6, 0): 32, (6, 1): 32, (6, 2): 32,
    (7, 0): 32, (7, 2): 32, (7, 5): 16, (8, 0): 32, (8, 6): 16, (8, 7): 16, (8, 9): 24,
    (9, 0): 32, (10, 0): 32, (10, 1): 24, (10, 3): 32, (11, 0): 24, (12, 0): 24, (12, 1): 24,
}  # fmt: skip
"""Blocks that a multiprocessor holds at most, by compute capability."""

_WARP = 32
_PARTITIONS = 4
_REGISTER_UNIT = 256
_RESERVED_SHARED_BYTES = 1024


def why_unknown(device: DeviceProperties | None) -> str | None:
    """Why occupancy cannot be computed on the device; `None` if it can."""
    if device is None:
        return "the trace does not describe the device"
    if device.warp_size not in (None, _WARP):
        return "the device is no NVIDIA GPU; its occupancy rules are not known here"
    if device.compute_capability not in _MOST_BLOCKS:
        return f"compute capability {device.compute_capability} is not known here"
    limits = (device.num_sms, device.max_threads_per_sm, device.registers_per_sm)
    if None in (*limits, device.shared_bytes_per_sm):
        return "the trace does not state all limits of the device"
    return None


def resident_blocks(
    device: DeviceProperties, num_threads: Ints, registers: Ints, shared_bytes: Ints
) -> Ints:
    """Blocks of a kernel that a multiprocessor can hold at once.

    Args:
        device: an NVIDIA GPU for which `why_unknown` is `None`.
        num_threads: threads in a block, at least 1.
        registers: per thread.
        shared_bytes: shared memory of a block, static and dynamic.
    """
    capability = device.compute_capability or (0, 0)
    warps = -(-num_threads // _WARP)
    most = np.minimum(_MOST_BLOCKS[capability], (device.max_threads_per_sm or 0) // _WARP // warps)
    per_warp = _round_up(np.maximum(registers, 1) * _WARP, _REGISTER_UNIT)
    per_partition = (device.registers_per_sm or 0) // _PARTITIONS
    most = np.minimum(most, per_partition // per_warp * _PARTITIONS // warps)
    modern = capability >= (8, 0)
    reserved = _RESERVED_SHARED_BYTES if modern else 0
    per_block = _round_up(np.maximum(shared_bytes, 0) + reserved, 128 if modern else 256)
    fitting = (device.shared_bytes_per_sm or 0) // np.maximum(per_block, 1)
    return np.asarray(np.where(per_block > 0, np.minimum(most, fitting), most), np.int64)


def achieved_pct(kernels: Activities, device: DeviceProperties | None) -> Floats:
    """Estimated achieved occupancy of each kernel, percent; NaN where it cannot be computed.

    min(resident blocks, grid blocks / multiprocessors) x threads of a block / most threads of a
    multiprocessor: Kineto's formula, without its rounding.
    """
    occupancy = np.full(len(kernels), np.nan)
    if device is None or why_unknown(device) is not None:
        return occupancy
    known = (kernels.num_blocks > 0) & (kernels.num_threads > 0) & (kernels.num_threads <= 1024)
    known &= (kernels.registers > 0) & (kernels.registers < 1024) & (kernels.shared_bytes >= 0)
    if known.any():
        threads = kernels.num_threads[known]
        blocks = resident_blocks(
            device, threads, kernels.registers[known], kernels.shared_bytes[known]
        )
        waiting = kernels.num_blocks[known] / (device.num_sms or 1)
        share = np.minimum(blocks, waiting) * threads / (device.max_threads_per_sm or 1)
        # What ran had a place: a 0 says that the trace's limits of the device are wrong.
        occupancy[known] = np.where(share > 0, 100.0 * np.minimum(share, 1.0), np.nan)
    return occupancy


def corrected_pct(kernels: Activities, device: DeviceProperties | None) -> Floats:
    """The computed occupancy, else Kineto's where it is a real one; NaN if there is neither.

    The computed one comes first because Kineto's is rounded: 0.4 % becomes 0. A 0 is never
    real, a running kernel occupies something.
    """
    computed = achieved_pct(kernels, device)
    written = np.where(kernels.occupancy_pct > 0, kernels.occupancy_pct, np.nan)
    return np.where(np.isfinite(computed), computed, written)


def blocks_per_sm(kernels: Activities, device: DeviceProperties | None) -> Floats:
    """Grid blocks over multiprocessors, as Kineto writes it or from the grid; NaN if unknown."""
    written = kernels.blocks_per_sm
    num_sms = device.num_sms if device is not None else None
    known = np.isfinite(written)
    if not num_sms or known.all():
        return np.where(known, written, np.nan)
    computed = np.where(kernels.num_blocks > 0, kernels.num_blocks / num_sms, np.nan)
    return np.where(known, written, computed)


def _round_up(values: Ints, unit: int) -> npt.NDArray[np.int64]:
    return -(-values // unit) * unit
