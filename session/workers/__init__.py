"""The processes of a run: which one lives, what it starts with, what its failures mean."""
