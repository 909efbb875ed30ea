"""A run as TensorBoard's own dashboards read it: event files.

The only wing that uses tensorboard, inside functions. May import the model and records.
"""
