"""Scalar expressions in kernels: `lowering.py` lowers them, with a rule per function in the files beside it; Arrow computes the rest."""
