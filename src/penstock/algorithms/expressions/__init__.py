"""Scalar expressions in kernels: `lowering.py` lowers them, `calls/` has a rule per function, Arrow computes the rest (`host_columns.py`)."""
