"""Joins that Hypothesis makes up: two small streams, a table, and every kind of join over them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
from hypothesis import strategies as st

import penstock as pk

JOIN_KINDS = ("inner", "left", "right", "full", "semi", "anti")
NAN = float("nan")
KEYS: dict[str, tuple[pa.DataType, list[object]]] = {
    "one": (pa.int64(), [7]),
    "few": (pa.int64(), [1, 2, 3, None]),
    "zipf": (pa.int64(), [1] * 6 + [2] * 3 + [3, 4, 5, 600, -(1 << 62), (1 << 63) - 1]),
    "text": (pa.string(), ["a", "b", "", "ü", None]),
    "float": (pa.float64(), [0.0, -0.0, NAN, 1.5, None]),
    "flag": (pa.bool_(), [True, False, None]),
}


@dataclass(frozen=True)
class Case:
    """A query by name, and the rows of both streams and of the table."""

    name: str
    left: pa.Table
    right: pa.Table
    table: pa.Table

    @property
    def rows(self) -> dict[str, pa.Table]:
        return {"a": self.left, "b": self.right, "T": self.table}

    def query(self, lateness: int = 0) -> pk.Stream:
        """The query over declared streams."""
        a = pk.stream("a", self.left.schema, time="t", lateness=lateness)
        b = pk.stream("b", self.right.schema, time="t", lateness=lateness)
        return QUERIES[self.name](a, b, pk.table(self.table, name="T"))


Build = Callable[[pk.Stream, pk.Stream, pk.Stream], pk.Stream]


def _pairs(how: str) -> dict[str, Build]:
    """Joins of pairs, of one kind."""
    windows = {
        "tumbling": pk.tumbling(10, offset=3),
        "with gaps": pk.sliding(6, every=10),
        "sliding": pk.sliding(10, every=4),
        "session": pk.session(3),
        "unbounded": pk.unbounded(),
        "different": (pk.tumbling(10), pk.sliding(20, every=5)),
        "different steps": (pk.sliding(7, every=4), pk.sliding(5, every=6, offset=2)),
    }
    made: dict[str, Build] = {
        f"{how} {name}": lambda a, b, T, window=window: a.join(b, on="k", window=window, how=how)
        for name, window in windows.items()
    }
    less = pk.left("x") < pk.right("y")
    for name, window in (("tumbling", pk.tumbling(10)), ("sliding", pk.sliding(10, every=4))):
        made[f"{how} theta {name}"] = lambda a, b, T, window=window: a.join(
            b, window=window, where=less, how=how
        )
    made[f"{how} band"] = lambda a, b, T: a.join(
        b,
        window=pk.tumbling(10),
        how=how,
        where=(pk.right("y") >= pk.left("x") - 1) & (pk.right("y") <= pk.left("x") + 1.5),
    )
    made[f"{how} residual"] = lambda a, b, T: a.join(
        b, on="k", window=pk.tumbling(10), how=how, where=pk.left("x") + 1 != pk.right("y")
    )
    for within in ((-5, 5), (2, 7), (-7, -2), (0, 0)):
        made[f"{how} within {within}"] = lambda a, b, T, within=within: a.join(
            b, on="k", within=within, how=how
        )
    made[f"{how} within theta"] = lambda a, b, T: a.join(
        b, within=(-2, 3), how=how, where=pk.left("x") <= pk.right("y")
    )
    return made


def _nearest() -> dict[str, Build]:
    made: dict[str, Build] = {}
    for direction in ("backward", "forward", "nearest"):
        for tolerance in (None, 3):
            for exact in (True, False):
                name = f"asof {direction} {tolerance} {exact}"
                made[name] = lambda a, b, T, direction=direction, tolerance=tolerance, exact=exact: (
                    a.join_asof(
                        b, by="k", direction=direction, tolerance=tolerance, allow_exact_matches=exact
                    )
                )
        made[f"asof {direction} without keys"] = lambda a, b, T, direction=direction: a.join_asof(
            b, direction=direction
        )
    return made


def _around() -> dict[str, Build]:
    several = {
        "n": pk.count(),
        "s": pk.sum("y"),
        "m": pk.max("y"),
        "f": pk.first("y"),
        "md": pk.median("y"),
        "d": pk.col("x") - pk.mean("y"),
    }
    made: dict[str, Build] = {
        f"rolling {within}": lambda a, b, T, within=within: a.join_rolling(b, by="k", within=within).agg(
            **several
        )
        for within in ((-5, 0), (-8, 4), (1, 5), (-9, -3))
    }
    made["rolling without keys"] = lambda a, b, T: a.join_rolling(b, within=(-3, 3)).agg(all=pk.list("y"))
    return made


def _tables() -> dict[str, Build]:
    made: dict[str, Build] = {
        f"table {how}": lambda a, b, T, how=how: a.join(T, on="k", how=how)
        for how in ("inner", "left", "semi", "anti")
    }
    made["table with a condition"] = lambda a, b, T: a.join(
        T, on="k", how="left", where=pk.left("x") > pk.right("c")
    )
    made["table on the left"] = lambda a, b, T: T.join(a, on="k", how="right")
    made["table in windows"] = lambda a, b, T: a.join(T, on="k", window=pk.tumbling(10))
    return made


def _followed() -> dict[str, Build]:
    """Joins with something before or behind them."""
    tumbling = pk.tumbling(10)
    return {
        "self": lambda a, b, T: a.join(a, on="k", window=tumbling),
        "chain": lambda a, b, T: a.join(b, on="k", window=tumbling).join(b, on="k", within=(-3, 3)),
        "then windows": lambda a, b, T: (
            a.join(b, on="k", within=(-4, 4))
            .window(pk.sliding(20, every=5), by="k")
            .agg(n=pk.count(), s=pk.sum("y"), l=pk.last("y"))
        ),
        "then its window": lambda a, b, T: (
            a.join(b, on="k", window=tumbling).window(by="k").agg(n=pk.count())
        ),
        "of windows": lambda a, b, T: (
            a.window(10, by="k")
            .agg(n=pk.count())
            .join(b.window(10, by="k").agg(m=pk.sum("y")), on="k", how="full")
        ),
        "table then windows": lambda a, b, T: a.join(T, on="k").window(10, by="c").agg(n=pk.count()),
        "filtered": lambda a, b, T: (
            a.filter(pk.col("x") > 2).join(b, on="k", window=tumbling).select("x", "y")
        ),
    }


QUERIES: dict[str, Build] = {
    **{name: made for how in JOIN_KINDS for name, made in _pairs(how).items()},
    **_nearest(),
    **_around(),
    **_tables(),
    **_followed(),
}
# The order of the keys of a window is not promised, nor that of the rows that `with_columns` gives for one.
UNORDERED = {"then windows", "then its window", "of windows", "table then windows", "table in windows"}


@st.composite
def streams(draw: st.DrawFn, value: str, keys: str, *, sorted_times: bool) -> pa.Table:
    """Draw a small stream with columns t, k and a value."""
    dtype, choice = KEYS[keys]
    rows = draw(st.lists(st.tuples(st.integers(-30, 30), st.sampled_from(choice), values()), max_size=25))
    rows = sorted(rows, key=lambda row: row[0]) if sorted_times else rows
    times, own, other = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.table(
        {"t": pa.array(times, pa.int64()), "k": pa.array(own, dtype), value: pa.array(other, pa.int64())}
    )


def values() -> st.SearchStrategy[int | None]:
    return st.none() | st.integers(0, 9)


@st.composite
def cases(draw: st.DrawFn, names: list[str], *, sorted_times: bool = False) -> Case:
    """Draw one of some queries, with data for it."""
    keys = draw(st.sampled_from(sorted(KEYS)))
    dtype, choice = KEYS[keys]
    known = draw(st.lists(st.sampled_from(choice), max_size=6))
    table = pa.table({"k": pa.array(known, dtype), "c": pa.array(range(len(known)), pa.int64())})
    left = draw(streams("x", keys, sorted_times=sorted_times))
    right = draw(streams("y", keys, sorted_times=sorted_times))
    return Case(draw(st.sampled_from(names)), left, right, table)
