"""`batchadvisor memory`: what filled the memory, from a snapshot that torch wrote before."""
