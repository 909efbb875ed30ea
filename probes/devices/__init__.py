"""The machine: torch's devices, their memory, the host's cores, what else runs on them.

May import: torch, probes/nvml.
"""
