"""Reads what the profiler wrote. Pure: standard library, msgspec and numpy only, no torch."""
