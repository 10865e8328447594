"""The time-centric IR: `nodes.py` is its grammar, `interpret.py` its meaning, `verify.py` and `show.py` what they say.

The files `join_*.py` are the same for objects that join two others.
"""
