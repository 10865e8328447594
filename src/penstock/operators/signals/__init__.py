"""Signals at run time: the points of temporal objects, partitioned by key (a partition is a `partition`)."""
