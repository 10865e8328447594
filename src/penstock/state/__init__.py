"""The state of a run in its canonical form: Arrow rows, never a dump of kernel memory.

    stages ── state_table.py ──▶ tables ── chunks.py ──▶ chunks of at most 1 MB ── format.py ──▶ bytes
                                           by key, then time                      manifest with checksums, chunks

The saved state depends only on the rows read and on the query: not on threads, the kind of key table, the width of
sums, or the kernels' assumptions about nulls. So one engine can load a state that another engine saved.
`state.py` is the public interface.
"""
