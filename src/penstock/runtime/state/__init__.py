"""The state of a run in its canonical form: Arrow rows, never a dump of kernel memory.

    stages ── kept.py ──▶ tables ── chunks.py ──▶ parts of at most 1 MB ── format.py ──▶ bytes
              cells.py                by key, then time                       a list with checksums, and the parts
              rows.py

What is kept depends on the rows seen and on the query alone: not on threads, on the kind of a key table, on how
wide sums are held or on what kernels assume about nulls. So a state saved by one engine is taken up by another.
`state.py` is the public face.
"""
