"""From plan to IR (`plan_to_ir.py`), and from IR to kernels: `fold.py` and `emit.py` for panes, `slide.py` for lanes."""
