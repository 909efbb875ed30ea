"""batchadvisor: which batch size to use, why, and how sure that is."""

__version__ = "0.1.0"
__all__ = ["__version__"]
