"""What a GPU's memory holds: torch's allocator as a replica, CUDA's context, MIG slices.

May import: nothing of ours but records and what is shared.
"""
