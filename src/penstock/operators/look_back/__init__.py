"""Aggregates over the rows behind each row: frames (`frames.py`) and results (`results.py`)."""
