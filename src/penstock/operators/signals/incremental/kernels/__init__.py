"""Kernels of incremental signals."""
