"""The benchmark of streams on Spark: the same files at the same trigger, ours and Spark's own way."""
