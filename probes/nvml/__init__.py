"""GPUs as the driver counts them. Nothing but NVML is asked.

May import: pynvml and nothing of the other wings.
"""
