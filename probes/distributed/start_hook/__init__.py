"""A folder for the PYTHONPATH of programs that are ranks: Python imports its `sitecustomize`."""
