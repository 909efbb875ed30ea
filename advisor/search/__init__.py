"""Decides which size is tried next, and when the search is over. May import: advisor/measured,
advisor/choose.

May import: advisor/measured, advisor/choose.
"""
