"""Measures: of the three rooms, it alone touches torch, NVML, processes and signals."""
