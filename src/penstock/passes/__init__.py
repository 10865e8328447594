"""Rewrites of the IR (in the order of `pipeline.py`), and questions about it that the compiler, the sources and Spark ask."""
