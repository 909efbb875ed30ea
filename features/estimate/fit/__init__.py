"""Predicts what fits on a GPU, from steps that were made on fake tensors.

May import: the feature's records, advisor/measured, advisor/gpu_memory.
"""
