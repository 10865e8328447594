"""Kernels of the pane aggregate: fold rows into panes, merge tables, emit windows. `window.py` builds each for a variant."""
