"""One global batch over GPUs of several types, on any hosts.

May import: the feature's records, advisor/measured, advisor/split.
"""
