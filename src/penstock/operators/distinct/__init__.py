"""One row for each value: over the whole stream (`stage.py`), or within a duration (`runs.py`)."""
