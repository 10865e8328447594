"""The steps of the fold kernel (`lower/fold.py`): pane, filter, cell."""
