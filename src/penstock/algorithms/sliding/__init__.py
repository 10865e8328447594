"""Sliding-window aggregation over frames of rows, one algorithm per file. `slide.py` is their interface; read `plain.py` first."""
