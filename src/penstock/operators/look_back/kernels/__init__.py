"""Kernels of look-backs."""
