"""The first k rows of each window."""
