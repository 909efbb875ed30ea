"""A Triton kernel; Triton reads the source of what it compiles from a file."""

import triton
import triton.language as tl


@triton.jit
def double(pointer, BLOCK: tl.constexpr):  # noqa: ANN001, ANN201, N803  Triton's own way
    """Doubles a block of values."""
    offsets = tl.arange(0, BLOCK)
    tl.store(pointer + offsets, tl.load(pointer + offsets) * 2)
