"""Joins as stages of a run: rows of both sides wait for the watermark, meet by window, interval or nearness, and become results.

`stage.py` is the stage, one file each the ways to meet. Large windows are joined by the algorithms of `runtime/joining`.
"""
