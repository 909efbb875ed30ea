"""The part inside the script's process: hooks live here alone, the files stay as they are."""
