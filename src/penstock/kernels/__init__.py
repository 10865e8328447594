"""Kernels in the loop IR, built by Python functions: pane and key tables, sliding windows, sorts, joins, signals."""
