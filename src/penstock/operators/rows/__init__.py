"""Filter and projection: one pass of a kernel over a batch."""
