"""Normalise: bring every stretch of a signal to mean 0 and deviation 1."""

import penstock as pk


def normalise(x: pk.Signal, size: str | int = "10s") -> pk.Signal:
    """Subtract the mean of the stretch a sample lies in, and divide by its deviation (of the population)."""
    stretch = x.per(size)
    return (x - stretch.mean()) / stretch.std(ddof=0)
