"""The time-centric IR: grammar (`nodes.py`), semantics (`interpret.py`), checks (`verify.py`), printer (`show.py`).

`signals/` has the same parts for the language of signals, which logical plans share.
"""
