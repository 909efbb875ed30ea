"""One file for each way to get steps of a size that is asked for, and what they share.

May import: probes/loader, probes/source, probes/devices, the messages and faults of probes/process.
"""
