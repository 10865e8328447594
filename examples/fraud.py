"""Fraud: an amount far above what the same customer spent in the ten days before."""

import penstock as pk


def fraud(amount: pk.Signal, tick: str | int = "1us", span: str | int = "10d") -> pk.Signal:
    """Tell where an amount is more than three deviations above the mean of those before it."""
    before = amount.rolling(span)
    return amount > (before.mean() + 3 * before.std()).shift(tick)  # the sample itself is not among them


def fraud_rows(payments: pk.Stream, span: str = "10d") -> pk.Stream:
    """Mark the same payments, as rows; the first few of a customer, who has no deviation yet, pass."""
    usual = pk.mean("amount") + 3 * pk.std("amount")
    known = payments.rolling(span, by="customer", closed="left").with_columns(limit=usual)
    return known.with_columns(suspect=(pk.col("amount") > pk.col("limit")).fill_null(False))
