"""Counts the tensor memory of a training step, on real tensors or on fake ones.

May import: nothing of ours but records and what is shared.
"""
