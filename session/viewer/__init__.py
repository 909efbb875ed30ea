"""Serves what stands behind TensorBoard: the tab's data, who may ask, readers of traces."""
