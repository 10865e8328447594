"""Relative strength index: the share of gains in all movement of the last 14 differences."""

import penstock as pk


def rsi(price: pk.Signal, step: str | int = "1s", span: str | int = "14s") -> pk.Signal:
    """Give 100 - 100 / (1 + gains / losses): 100 if all are gains, nothing where nothing moved."""
    change = price - price.shift(step)
    gains = change.map(lambda v: pk.when(v > 0).then(v).otherwise(0.0)).rolling(span).sum()
    moves = change.abs().rolling(span).sum()
    return (100 * gains / moves).where(moves > 0)
