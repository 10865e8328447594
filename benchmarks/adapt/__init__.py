"""What `python -m benchmarks adapt` runs: figures 12 to 14 of Grizzly, on this engine's own variants."""
