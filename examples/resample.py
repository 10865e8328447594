"""Resample: from one sampling rate to another, on the straight line between neighbours."""

import penstock as pk


def resample(x: pk.Signal, every: str | int = "5ms") -> pk.Signal:
    """Give the signal samples at multiples of another period, from its first sample on."""
    return x.resample(every=every, method="linear")
