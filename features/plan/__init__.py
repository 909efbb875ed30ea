"""`batchadvisor plan`, `emit` and `run --engine`: one job over GPUs of several types and hosts."""
