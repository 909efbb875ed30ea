"""Words of an estimate, the same in every format.

May import the feature's records and the core's words.
"""
