"""One kernel for a temporal expression over stored times: walk, reductions, fields and coalescing of neighbours.

    for each sorted partition:                       (operators/signals/fused/kernels/changes.py)
        for each block of instants:
            the cursors of all tracks at each instant
            every reduction over its frames          (algorithms/sliding/incremental.py)
            the fields, and the instants at which they change

A block stays in the cache, so only input points and new output points pass through memory.
"""
