"""The benchmark on Spark: the same files, the same questions, everybody's own way."""
