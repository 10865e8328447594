"""The steps of the emit kernel (`lower/emit.py`): from the panes of a window to one row of its result."""
