"""What CUDA takes of a GPU's memory beside torch's allocator."""

from __future__ import annotations

LEAST_CONTEXT_BYTES = 300 << 20
MOST_CONTEXT_BYTES = 650 << 20
"""Bytes of CUDA's context, its libraries and workspaces, beside torch's allocator, at most."""
