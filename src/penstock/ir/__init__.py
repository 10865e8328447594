"""The time-centric IR: grammar (`nodes.py`), semantics (`interpret.py`), checks (`verify.py`), printer (`show.py`).

The files `join_*.py` hold the same parts for joins.
"""
