"""Sections of a report in words: each takes what it says from a record and its advice.

May import what `builder/` may.
"""
