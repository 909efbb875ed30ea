"""`batchadvisor estimate`: the batch that should fit on a GPU that is not there."""
