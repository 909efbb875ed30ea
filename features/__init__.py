"""What is not the core: each folder is a whole with its record, logic, page, command and tests.

A feature imports the core. The core imports no feature: it finds their parts by name, late.
"""
