"""Rewrites of the IR, in the order of `pipeline.py`, and the choices that the compiler, the sources and Spark derive from it."""
