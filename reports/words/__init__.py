"""Words and numbers for people, the same in every format; texts that are safe to show.

May import records and units alone.
"""
