"""Engines that start probes on the machines of a cluster that is there already.

`kubernetes` writes manifests and applies nothing. May import the records; nothing of it is imported
unless its command runs.
"""
