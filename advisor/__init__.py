"""Decides: pure functions of records, without torch, clocks, files or processes."""
