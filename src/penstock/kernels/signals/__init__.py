"""Kernels over temporal objects: lanes of points, each holding until the next (TiLT's snapshot buffers, section 6.1)."""
