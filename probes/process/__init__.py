"""The supervisor's side: starts the process of the script, listens to it, limits and ends it.

May import: records, probes/devices for the host and its GPUs, probes/source; torch in functions.
"""
