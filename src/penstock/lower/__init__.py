"""Lower IR to kernels: `fold.py` and `emit.py` for panes, `slide.py` for sorted partitions."""
