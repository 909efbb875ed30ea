"""Makes the report object of a plan, and the code that puts it to work.

May import what the core's builder may, and the feature's own data.
"""
