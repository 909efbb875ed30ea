"""Inside the script's process: runs the script, takes orders, runs trials, keeps saves back.

May import: probes/windows, probes/doors, probes/loader, probes/devices, probes/source,
probes/process; probes/fake_step inside functions; probes/distributed only where there are several
ranks.
"""
