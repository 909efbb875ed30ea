"""Text of a plan, the same in every format.

May import the feature's records and the core's words.
"""
