"""Join stages: rows are buffered up to the watermark and matched by window, interval or nearest time.

`stage.py` is the stage; each kind of match has one file. The algorithms for large windows are in `algorithms/joins`.
"""
