"""Drivers of the eight join algorithms: key codes of one window in, pairs of rows out, independent of time.

The kernels are in `kernels/`; `operators/joins` calls the drivers window by window.
"""
