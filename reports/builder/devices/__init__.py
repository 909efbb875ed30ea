"""A run on several devices: its rows, its report, one global batch divided over them.

May import what `builder/` may.
"""
