"""Impute: put the mean of its stretch where a sample is missing."""

import penstock as pk


def impute(x: pk.Signal, size: str | int = "10s") -> pk.Signal:
    """Fill gaps with the mean of the samples that are there, stretch by stretch."""
    return x.or_else(x.per(size).mean())
