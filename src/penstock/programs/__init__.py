"""Programs bind kernels to the back end that compiles them, and build the runtime's stages.

There is one for each execution strategy of IR objects: panes, sorted partitions, joins, signals, rows.
"""
