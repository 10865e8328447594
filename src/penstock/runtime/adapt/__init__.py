"""Choosing a join algorithm while a query runs: `observe.py` looks at a window, `tree.py` decides, `watch.py` notes how it went."""
