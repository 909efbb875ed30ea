"""Measures: the only room that touches torch, NVML, processes and signals."""
