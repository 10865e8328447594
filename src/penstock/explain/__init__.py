"""Render a compiled query at any stage of compilation, with the reasons for its physical choices."""

from penstock.explain.kernels import kernels
from penstock.explain.query import explain, saved_cell

__all__ = ["explain", "kernels", "saved_cell"]
