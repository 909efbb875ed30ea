"""One file for each framework; each is imported, with its framework, when it is asked for."""
