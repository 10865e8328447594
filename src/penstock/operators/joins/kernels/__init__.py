"""Kernels of joins over sorted partitions: matching ranges, and gathering of result columns."""
