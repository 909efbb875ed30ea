"""`batchadvisor view` and the tab "Batch Advisor" in TensorBoard."""
