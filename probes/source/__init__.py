"""The text of the script: where it sets its batch size, and which frames are its own.

May import: records.
"""
