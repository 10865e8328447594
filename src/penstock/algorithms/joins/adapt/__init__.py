"""The choice of a join algorithm at run time: `window_statistics.py` measures a window, `tree.py` decides,
`runtime/metrics.py` records the outcome.
"""
