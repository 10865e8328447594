"""Aggregates over the rows behind each row, as frames (`frames.py`) or as running aggregates per key (`incremental.py`)."""
