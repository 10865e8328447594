"""Show a compiled query at any stage of its way, and why it runs as it does."""

from penstock.explain.query import explain, kernels, saved_cell

__all__ = ["explain", "kernels", "saved_cell"]
