"""Sliding-window aggregation over frames of rows, one algorithm a file. `slide.py` is what each is given; read `plain.py` first."""
