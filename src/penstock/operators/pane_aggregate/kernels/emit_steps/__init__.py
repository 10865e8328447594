"""The steps of the emit kernel (`operators/pane_aggregate/kernels/emit.py`): from the panes of a window to one row of its result."""
