"""The dense path of signals: over regular time an object is one value per position, and time needs no column."""

from __future__ import annotations

from penstock.operators.signals.positional.kernels.program import EDGE, Dense, DenseKernel, dense

__all__ = ["EDGE", "Dense", "DenseKernel", "dense"]
