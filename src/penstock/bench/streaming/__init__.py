"""The benchmark of streams on Spark (WORKLOADS section 7): the same files at the same trigger, ours and Spark's own way."""
