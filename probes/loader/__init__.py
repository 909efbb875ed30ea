"""DataLoaders and batches: whose sizes change, and what a batch holds.

May import: torch and nothing of the other wings.
"""
