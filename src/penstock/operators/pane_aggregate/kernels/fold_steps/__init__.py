"""The steps of the fold kernel (`operators/pane_aggregate/kernels/fold.py`): pane, filter, cell."""
