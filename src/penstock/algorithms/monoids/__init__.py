"""Aggregates as data: state, identity, the step that adds a value, and the merge of two states.

A *monoid* defines the accumulator that a pane keeps for its rows. All other code (window types, key tables,
sliding-window algorithms) only calls `step` and `merge` and reads the flags, never a monoid's name.
"""

from __future__ import annotations

from penstock.algorithms.monoids.base import (
    Hasty,
    Monoid,
    Prefix,
    StateField,
    Values,
    count,
    extreme_by,
    first_or_last,
    float_sum,
    greatest,
    integer_sum,
    least,
    long_sum,
    present,
    text_extreme,
)
from penstock.algorithms.monoids.moments import (
    comoments,
    float_product,
    integer_product,
    moments,
    scaled_product,
    signed_product,
    unsigned_product,
)

__all__ = [
    "Hasty",
    "Monoid",
    "Prefix",
    "StateField",
    "Values",
    "comoments",
    "count",
    "extreme_by",
    "first_or_last",
    "float_product",
    "float_sum",
    "greatest",
    "integer_product",
    "integer_sum",
    "least",
    "long_sum",
    "moments",
    "present",
    "scaled_product",
    "signed_product",
    "text_extreme",
    "unsigned_product",
]
