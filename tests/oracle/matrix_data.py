"""Tables for the matrix of windows and aggregates: a column for each role, with the values that hurt.

A table is made from a seed, not cell by cell: queries here are large enough for Hypothesis as they are.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pyarrow as pa

from tests.oracle.describe import TimeSpec
from tests.oracle.strategies import PLAIN, SPECIAL, STRINGS, to_array

WIDE = (2**63 - 1, -(2**63), 2**62, -(2**62), 2**53 + 1, 1, 0, -1)
GENTLE = (*(n / 8 for n in range(-40, 41, 3)), 100.0, -99.5, 0.125)
UNRULY = (float("nan"), float("inf"), float("-inf"), 1e9 + 0.5)
EXTREME = (*(x for x in SPECIAL if abs(x) != 1e308), 1e300, -1e300)  # sums of magnitudes stay finite
KEYS = (float("nan"), -0.0, 0.0, 1.5, float("inf"))
INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
SEQUENCES = (pa.int64(), pa.int32(), pa.float64(), pa.string(), pa.timestamp("us"))

Make = Callable[[random.Random], tuple[Sequence[object], pa.DataType]]

# Each role: what values are drawn from, and of which type.
ROLES: dict[str, Make] = {
    "k": lambda r: (r.choice([(7,), (0, 1, 2), (-(2**63), 2**63 - 1, 0), range(9)]), pa.int64()),
    "s": lambda r: (r.sample(STRINGS, 3), r.choice([pa.string(), pa.dictionary(pa.int32(), pa.string())])),
    "f": lambda r: (KEYS, r.choice([pa.float64(), pa.float32()])),
    "x": lambda r: (range(6) if r.random() < 0.5 else range(100), r.choice(INTEGERS)),
    "w": lambda r: (WIDE, pa.int64()),
    "v": lambda r: (PLAIN if r.random() < 0.5 else PLAIN + EXTREME, pa.float64()),
    "e": lambda r: ((0.5, -1.25, 3.0, float("nan"), -0.0), pa.float32()),
    "g": lambda r: (GENTLE if r.random() < 0.7 else GENTLE + UNRULY, pa.float64()),
    "h": lambda r: (GENTLE, pa.float64()),
    "b": lambda r: ((True, False), pa.bool_()),
    "m": lambda r: (STRINGS, r.choice([pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())])),
    "d": lambda r: (range(-3, 4), r.choice([pa.date32(), pa.timestamp("ms", "UTC"), pa.duration("s")])),
    "q": lambda r: (range(3), r.choice(SEQUENCES)),
}  # fmt: skip


def table_of(seed: int, times: Sequence[int | None], time: TimeSpec) -> pa.Table:
    """Make the rows at these times; half of the columns have nulls, a few nothing else."""
    rng = random.Random(seed)
    arrays = [to_array(list(times), time.type)]
    arrays += [_column(rng, make, len(times)) for make in ROLES.values()]
    return pa.table(arrays, names=["t", *ROLES])


def _column(rng: random.Random, make: Make, rows: int) -> pa.Array:
    pool, dtype = make(rng)
    holes = rng.choice([0.0, 0.0, 0.2, 0.2, 1.0 if rng.random() < 0.2 else 0.5])
    cells = [None if rng.random() < holes else rng.choice(list(pool)) for _ in range(rows)]
    if pa.types.is_string(dtype):
        return pa.array([None if cell is None else str(cell) for cell in cells], dtype)
    return pa.array(cells, dtype) if pa.types.is_large_string(dtype) else to_array(cells, dtype)
