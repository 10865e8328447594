"""The language of expressions, shared by plan and IR: `nodes.py` is its grammar, `typing.py` its types, `evaluate.py` its meaning."""
