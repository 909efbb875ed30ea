"""One global batch over the unlike devices of a run.

May import: advisor/measured.
"""
