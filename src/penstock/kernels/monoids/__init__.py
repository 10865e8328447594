"""The algebra of aggregates as data: state, identity, how to add a value, how to merge two states.

A *monoid* is what a pane remembers about its rows. Everything else (which window type, how keys are
found, which algorithm slides) only calls `step` and `merge`, and reads the flags; never a name.
"""

from __future__ import annotations

from penstock.kernels.monoids.base import Hasty, Monoid, Prefix, State, Values
from penstock.kernels.monoids.choices import extreme_by, first_or_last
from penstock.kernels.monoids.extremes import greatest, least, text_extreme
from penstock.kernels.monoids.moments import comoments, moments
from penstock.kernels.monoids.products import (
    float_product,
    integer_product,
    scaled_product,
    signed_product,
    unsigned_product,
)
from penstock.kernels.monoids.sums import count, float_sum, integer_sum, present

__all__ = [
    "Hasty",
    "Monoid",
    "Prefix",
    "State",
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
    "moments",
    "present",
    "scaled_product",
    "signed_product",
    "text_extreme",
    "unsigned_product",
]
