"""Each feature is a whole: its records, logic, page, command. None imports another."""
