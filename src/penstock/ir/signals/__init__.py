"""The signal language (TiLT), shared by plan and IR: grammar in `nodes.py`, semantics in `interpret.py`."""
