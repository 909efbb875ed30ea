"""Makes the pages of the tab in TensorBoard that are of no single run, and a run's summary.

May import what `builder/` may.
"""
