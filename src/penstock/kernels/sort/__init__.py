"""Kernels that put rows in order: by time, by key, by rank."""
