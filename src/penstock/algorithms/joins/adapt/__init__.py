"""The choice of a join algorithm at run time: `window_statistics.py` measures a window, `tree.py` decides,
`join_metrics.py` records the outcome.
"""
