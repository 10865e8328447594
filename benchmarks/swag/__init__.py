"""`python -m benchmarks swag`: sliding windows against Hammer Slide's algorithm in C++, and against the peers.

subjects    what is aggregated, over which numbers, and the seeded generators
kernel      Penstock's compiled loop over count windows, called without the engine around it
sweeps      sizes, slides, adversarial data, slides that do not divide, spiky arrivals
questions   look-backs, keyed sliding, sessions and counts, as whole queries
peers       the same questions in Polars, DuckDB and pandas
suite       which of them a run consists of, and the targets they are held to
"""
