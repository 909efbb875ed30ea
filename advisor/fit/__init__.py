"""Predicts what fits on a GPU, from steps that were made on fake tensors.

May import: advisor/measured.
"""
