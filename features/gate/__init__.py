"""The gate of a pull request: whether a change made the step slower or larger than it may.

Evidence is runs, each with processes of its own: steps of one process say nothing of the next.
"""
