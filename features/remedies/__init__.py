"""Remedies that were tried: each runs in a process of the script, beside the script as it is.

`catalogue.py` says what there is, what it can gain at most, what to write, and in which order it is
tried; `trying.py` runs it; `in_script/` is what happens inside the script's process.
"""
