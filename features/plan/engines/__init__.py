"""Engines that start probes on the machines of a cluster that is there already.

`kubernetes` writes manifests and applies nothing. A door: may import everything, heavy things
inside functions only; nothing of it is imported unless its command runs.
"""
