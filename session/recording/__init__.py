"""Writes what a run leaves on disk: the record, event files, traces."""
