"""Sliding-window aggregation over frames of rows. `slide.py` is the interface of the algorithms; read `plain.py` first."""
