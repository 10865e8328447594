"""Kernels over temporal objects: partitions of points, each valid until the next (TiLT's snapshot buffers, section 6.1)."""
