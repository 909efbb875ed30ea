"""Counts the tensor memory of a training step, on real tensors or on fake ones.

May import: records, what is shared, and four modules of other wings: devices/live_objects,
memory/stacks, windows/optimizer_hooks, windows/step_flops.
"""
