"""One kernel for a temporal expression over stored times: walk, reductions, fields and joining of neighbours.

    for each lane:                                   (kernels/signals/changes.py)
        for each block of instants:
            where everything stands at each of them
            every reduction over its frames          (kernels/swag/incremental.py)
            the fields, and what differs from the instant before

A block stays in the cache, so nothing passes through memory but points that are read and points that are new.
"""
