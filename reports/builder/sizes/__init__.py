"""The sizes that were tried: rows, columns, tables.

May import what `builder/` may.
"""
