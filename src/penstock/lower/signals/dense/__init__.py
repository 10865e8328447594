"""The dense path of signals: over regular time an object is one value per position, and time needs no column."""

from __future__ import annotations

from penstock.lower.signals.dense.program import EDGE, Dense, DenseKernel, dense, fits, why_not

__all__ = ["EDGE", "Dense", "DenseKernel", "dense", "fits", "why_not"]
