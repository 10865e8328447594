"""States per key that persist between pushes: the key directory of a stage, and the parts its kernels share."""
