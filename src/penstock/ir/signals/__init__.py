"""The language of signals (TiLT), shared by plan and IR: `nodes.py` is its grammar, `interpret.py` its meaning."""
