"""What follows from a record by arithmetic: measurements by size, laws, ends of epochs.

`Measurements` has the facts of one record, and everything of the advisor asks them. Decides
nothing.

May import: records, advisor/tails.
"""
