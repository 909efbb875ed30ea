"""One trial inside the running loop: its steps, what was counted meanwhile, its profile.

May import: probes/loader, what probes/devices says a device is, the messages of probes/process.
"""
