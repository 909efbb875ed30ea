"""The charts of a report, as data: over the batch size, over time, of several runs in one.

May import what `builder/` may.
"""
