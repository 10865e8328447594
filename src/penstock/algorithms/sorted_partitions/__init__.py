"""Windows that panes cannot represent, computed over sorted partitions.

Rows are buffered, then stored by key in time order. A window is a frame: a range of rows of one partition.
"""
