"""The benchmark on Spark (WORKLOADS section 7): the same files, the same questions, everybody's own way."""
