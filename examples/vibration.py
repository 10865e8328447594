"""Vibration: how a machine shakes, by three numbers for every stretch of its signal."""

import penstock as pk


def vibration(x: pk.Signal, size: str | int = "100ms") -> pk.Signal:
    """Give kurtosis (the standardised fourth moment), root mean square, and crest factor (peak / rms)."""
    rms = (x * x).per(size).mean().sqrt()
    return pk.align(
        kurtosis=x.per(size).kurtosis(fisher=False),
        rms=rms,
        crest=x.abs().per(size).max() / rms,
    )
