"""One row for each value: over the whole stream, or within a duration (`stage.py`)."""
