"""Aggregates as users write them, each with the arguments it is used with, for tests of every stage.

The columns are those of `DATA`: `x` floats, `n` and `m` small integers, `b` booleans, all with nulls.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import strategies as st

import penstock as pk

INFINITY = float("inf")


class Welford(NamedTuple):
    n: Any
    mean: Any
    squares: Any


def welford_add(s: Welford, x: Any) -> Welford:
    delta = x - s.mean
    mean = s.mean + delta / (s.n + 1)
    return Welford(s.n + 1, mean, s.squares + delta * (x - mean))


def welford_merge(a: Welford, b: Welford) -> Welford:
    """Chan's formula as textbooks have it: NaN for two empty states, which nobody should ever merge."""
    delta, n = b.mean - a.mean, a.n + b.n
    return Welford(n, a.mean + delta * b.n / n, a.squares + b.squares + delta * delta * a.n * b.n / n)


RMS = pk.aggregate(
    init=(0.0, 0),
    add=lambda s, x: (s[0] + x * x, s[1] + 1),
    result=lambda s: (s[0] / s[1]).sqrt(),
    merge=lambda a, b: (a[0] + b[0], a[1] + b[1]),
    remove=lambda s, x: (s[0] - x * x, s[1] - 1),
)
GEOMETRIC = pk.aggregate(
    init=(0, 0),
    add=lambda s, x: (s[0] + abs(x).log(), s[1] + 1),
    result=lambda s: (s[0] / s[1]).exp(),
    merge=lambda a, b: (a[0] + b[0], a[1] + b[1]),
)
SPREAD = pk.aggregate(
    init=(INFINITY, -INFINITY),
    add=lambda s, x: (pk.least(s[0], x), pk.greatest(s[1], x)),
    result=lambda s: pk.when(s[0] <= s[1]).then(s[1] - s[0]).otherwise(None),
    merge=lambda a, b: (pk.least(a[0], b[0]), pk.greatest(a[1], b[1])),
)
WEIGHTED = pk.aggregate(
    init=(0.0, 0.0),
    add=lambda s, x, w: (s[0] + x * w, s[1] + w),
    result=lambda s: s[0] / s[1],
    merge=lambda a, b: (a[0] + b[0], a[1] + b[1]),
)
VARIANCE = pk.aggregate(
    init=Welford(0, 0.0, 0.0), add=welford_add, result=lambda s: s.squares / s.n, merge=welford_merge
)
SQUARES = pk.aggregate(
    init=0,
    add=lambda s, x: s + x * x,
    result=lambda s: s,
    merge=lambda a, b: a + b,
    remove=lambda s, x: s - x * x,
)
PARITY = pk.aggregate(
    init=False,
    add=lambda s, b: s ^ b,
    result=lambda s: ~s,
    merge=lambda a, b: a ^ b,
    remove=lambda s, b: s ^ b,
)
TALLY = pk.aggregate(
    init=0, add=lambda s: s + 1, result=lambda s: s, merge=lambda a, b: a + b, remove=lambda s: s - 1
)
SMALLEST = pk.aggregate(
    init=None, add=lambda s, x: pk.least(x, s), result=lambda s: s, merge=lambda a, b: pk.least(b, a)
)
QUOTIENTS = pk.aggregate(  # a division by zero is null, and stays in the state
    init=(0, 0),
    add=lambda s, x, y: (s[0] + x // y, s[1] + 1),
    result=lambda s: s[0] * 10 + s[1],
    merge=lambda a, b: (a[0] + b[0], a[1] + b[1]),
)

x, n, m, b = map(pk.col, ("x", "n", "m", "b"))

# Rows may come in any order, and windows be put together from parts.
MERGEABLE = {
    "rms": RMS(x),
    "rms of integers": RMS(n),
    "rms of an expression": RMS(x * 2 + n, where=n > 0),
    "geometric mean": GEOMETRIC(x),
    "spread": SPREAD(x),
    "spread of booleans": SPREAD(b.cast("int8"), where=b),
    "weighted mean": WEIGHTED(x, m),
    "variance": VARIANCE(n),
    "squares": SQUARES(n),
    "parity": PARITY(b),
    "tally": TALLY(),
    "tally where": TALLY(where=n > 1),
    "smallest": SMALLEST(x),
    "smallest integer": SMALLEST(n, where=n > 2),
    "quotients": QUOTIENTS(n, m),
    "a ratio": RMS(x) / pk.mean(x) + TALLY(),
}

# The order of rows decides: windows are computed row by row.
IN_ORDER = {
    "recurrence": pk.aggregate(init=0.0, add=lambda s, x: s * 0.5 + x, result=lambda s: s)(x),
    "changes": pk.aggregate(
        init=(None, 0),
        add=lambda s, x: (x, pk.when(s[0] != x).then(s[1] + 1).otherwise(s[1])),
        result=lambda s: s[1],
    )(n),
    "last less first": pk.aggregate(
        init=(None, None),
        add=lambda s, x: (s[0].fill_null(x), x),
        result=lambda s: s[1] - s[0],
        merge=lambda a, b: (a[0].fill_null(b[0]), b[1].fill_null(a[1])),
        commutative=False,
    )(n),
}

_COLUMNS = {
    "t": st.integers(0, 30),
    "k": st.sampled_from(["a", "b", None]),
    "x": st.sampled_from([0.0, -0.0, 1.5, -2.25, 1e6, 1e-6, INFINITY, -INFINITY, float("nan"), None]),
    "n": st.sampled_from([0, 1, 2, 3, -5, 7, None]),
    "m": st.sampled_from([0, 1, 2, -3, None]),
    "b": st.sampled_from([True, False, None]),
}
SCHEMA = pa.schema(
    {"t": pa.int64(), "k": pa.string(), "x": pa.float64(), "n": pa.int32(), "m": pa.int64(), "b": pa.bool_()}
)


@st.composite
def tables(draw: Any, most: int = 40) -> pa.Table:
    """Draw rows, out of order and with many alike; the first has nulls, so that one kernel serves all tables."""
    rows = draw(st.lists(st.fixed_dictionaries(_COLUMNS), max_size=most))
    return pa.Table.from_pylist([{"t": 3}, *rows], schema=SCHEMA)
