"""What is tried next, and when it is enough.

May import: advisor/measured, advisor/choose.
"""
