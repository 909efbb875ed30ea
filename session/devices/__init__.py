"""Runs on several devices at once, each in a process of its own."""
