"""Streams that the tests of SQL read, and results as tuples."""

from __future__ import annotations

import pyarrow as pa

import penstock as pk

S = pa.table(
    {
        "ts": pa.array([0, 3, 7, 12, 14, 21], pa.timestamp("s")),
        "k": ["a", "b", "a", "a", "b", None],
        "v": pa.array([5, -2, 9, 4, None, 1], pa.int64()),
        "x": [0.5, 1.5, 2.5, 3.5, 4.5, 5.5],
    }
)
R = pa.table({"ts": pa.array([1, 4, 13], pa.timestamp("s")), "k": ["a", "b", "a"], "w": [10, 20, 30]})
U = pa.table({"t": [1, 2, 3, 5, 8, 13], "k": ["a", "b", "a", "a", "b", "b"], "v": [1, 2, 3, 4, 5, 6]})
N = pa.table({"k": ["a", "b"], "name": ["Anna", "Bob"]})


def streams() -> dict[str, pk.Stream]:
    return {
        "s": pk.from_arrow(S, time="ts", name="s"),
        "r": pk.from_arrow(R, time="ts", name="r"),
        "u": pk.from_arrow(U, time="t", name="u"),
        "n": pk.table(N, name="n"),
    }


def query(text: str) -> pk.Stream:
    return pk.sql(text, **streams())


def rows(made: pk.Stream) -> list[tuple]:
    """The rows in some fixed order, times as seconds."""
    found = [tuple(map(plain, row.values())) for row in made.collect().to_pylist()]
    return sorted(found, key=lambda row: [(value is not None, str(type(value)), value) for value in row])


def plain(value: object) -> object:
    timestamp = getattr(value, "timestamp", None)
    if timestamp is None:
        return tuple(value) if isinstance(value, list) else value
    import datetime

    return int(value.replace(tzinfo=datetime.UTC).timestamp())  # type: ignore[attr-defined]
