"""One global batch over unlike devices: of a run on several, or of types on any hosts.

May import: advisor/measured.
"""
