"""The runtime: a graph of stages through which rows and watermarks flow (`session.py`), and what stages share.

The runtime does not depend on queries or operators: `kernels.py` is its interface to the compiler.
"""
