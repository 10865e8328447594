"""The rows of the figures: YSB with five more predicates, many keys, and what changes between phases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import penstock as pk
from penstock.api.stream import Stream


class WrongAnswerError(Exception):
    """A contender's results differ from the others'."""


TICK = 10  # between two rows
PREDICATES = ("a", "b", "c", "x", "y")
BOUND = 5


@dataclass(frozen=True)
class Phase:
    """Rows that are alike: the share that passes `x` and `y`, the number of keys, and the share of the hottest key."""

    name: str
    x: float = 0.5
    y: float = 0.5
    keys: int = 1_000
    hot: float = 0.0


def predicates_query(rows: int) -> Stream:
    """Sum by key of the rows that pass five comparisons, in windows of half a push."""
    columns = ("t", "k", "v", *PREDICATES)
    stream = pk.stream("rows", dict.fromkeys(columns, "int64"), time="t")
    where = pk.col(PREDICATES[0]) >= BOUND
    for name in PREDICATES[1:]:
        where = where & (pk.col(name) >= BOUND)
    return stream.filter(where).window(rows * TICK // 2, by="k").agg(total=pk.sum("v"), n=pk.count())


def keys_query(rows: int) -> Stream:
    """Sum and count by key, in windows of a push."""
    stream = pk.stream("rows", {"t": "int64", "k": "int64", "v": "int64"}, time="t")
    return stream.window(rows * TICK, by="k").agg(total=pk.sum("v"), n=pk.count())


def columns_of(phase: Phase, names: Sequence[str], rows: int, seed: int) -> dict[str, np.ndarray]:
    """The columns of one push, without times."""
    rng = np.random.default_rng(seed)
    uniform = rng.integers(0, phase.keys, rows)
    made = {"k": np.where(rng.random(rows) < phase.hot, 7, uniform) if phase.hot else uniform}
    made["v"] = rng.integers(0, 100, rows)
    shares = {"x": phase.x, "y": phase.y}
    for name in (name for name in names if name in PREDICATES):
        made[name] = np.where(rng.random(rows) < shares.get(name, 0.5), 2 * BOUND, 0)
    return {name: made[name] for name in names if name != "t"}


def batch_at(columns: dict[str, np.ndarray], names: Sequence[str], number: int) -> pa.RecordBatch:
    """The columns as the push of this number."""
    rows = len(next(iter(columns.values())))
    times = (np.arange(rows) + number * rows) * TICK
    return pa.record_batch({name: times if name == "t" else columns[name] for name in names})


# --- survivors of a selective condition -----------------------------------------------------------------

ALONE = "a == 1"
LISTED = range(0, 100, 3)
TEXTS = ("user-1-abc", "user-2-abc")
_A, _B, _S = pk.col("a"), pk.col("b"), pk.col("s")
SURVIVOR_FILTERS: dict[str, pk.Expr] = {
    ALONE: _A == 1,
    "a == 1 & regex(s)": (_A == 1) & _S.str.contains(r"r-1.*c$"),
    "a == 1 & len(s) > 10": (_A == 1) & (_S.str.len_chars() > 10),
    "a == 1 & b in (34 values)": (_A == 1) & _B.is_in(LISTED),
    "a == 1 & s in (2 texts)": (_A == 1) & _S.is_in(TEXTS),
    "a == 1 & (b % 7 == 2 | b % 5 == 1 | regex(s))": (_A == 1)
    & ((_B % 7 == 2) | (_B % 5 == 1) | _S.str.contains(r"r-1.*c$")),
}
_PLAIN: dict[str, Callable[[pa.Table], pa.ChunkedArray]] = {
    ALONE: lambda kept: pc.equal(kept["a"], 1),
    "a == 1 & regex(s)": lambda kept: pc.match_substring_regex(kept["s"], r"r-1.*c$"),
    "a == 1 & len(s) > 10": lambda kept: pc.greater(pc.utf8_length(kept["s"]), 10),
    "a == 1 & b in (34 values)": lambda kept: pc.is_in(kept["b"], pa.array(LISTED)),
    "a == 1 & s in (2 texts)": lambda kept: pc.is_in(kept["s"], pa.array(TEXTS)),
    "a == 1 & (b % 7 == 2 | b % 5 == 1 | regex(s))": lambda kept: pa.chunked_array(
        [
            [
                b % 7 == 2 or b % 5 == 1 or matched
                for b, matched in zip(
                    kept["b"].to_pylist(),
                    pc.match_substring_regex(kept["s"], r"r-1.*c$").to_pylist(),
                    strict=True,
                )
            ]
        ],
        pa.bool_(),
    ),
}


def survivor_rows(rows: int) -> pa.Table:
    """Rows of which 0.1 % have a == 1."""
    rng = np.random.default_rng(0)
    names = pa.array([f"user-{number}-abc" for number in range(1_000)])
    return pa.table(
        {
            "t": np.arange(rows),
            "a": np.where(rng.random(rows) < 0.001, 1, rng.integers(2, 100, rows)),
            "b": rng.integers(0, 100, rows),
            "s": names.take(pa.array(rng.integers(0, 1_000, rows))),
        }
    )


def check_survivors(name: str, table: pa.Table, found: int) -> None:
    """Raise unless as many rows were counted as Arrow and Python keep."""
    kept = table.filter(pc.equal(table["a"], 1))
    expected = pc.sum(_PLAIN[name](kept)).as_py() or 0
    if found != expected:
        raise WrongAnswerError(f"{name}: {found:,} rows instead of {expected:,}")
