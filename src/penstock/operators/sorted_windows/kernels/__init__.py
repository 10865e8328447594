"""Kernels of sorted windows."""
