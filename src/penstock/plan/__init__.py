"""The logical plan, what was asked: `nodes.py` is its grammar, `schema.py` the columns of each node, `codec.py` its form as text."""
