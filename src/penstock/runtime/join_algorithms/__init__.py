"""The drivers of the eight join algorithms: codes of one window's keys in, pairs of rows out. They know nothing of time.

The kernels they call are in `kernels/joins`; `runtime/joins` calls them window by window.
"""
