"""One global batch over unlike devices.

May import: advisor/measured.
"""
