"""Checks what a run was asked for and finds its devices, before anything starts."""
