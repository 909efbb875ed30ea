"""A report as JSON, and the schema of that JSON. May import the model alone."""
