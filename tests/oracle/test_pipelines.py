"""Verbs in any order: whatever the query, it runs or is refused in our words, and gives one answer however it runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from tests.oracle.effort import effort

Verb = Callable[[Random, Any, Any], Any]
BOUNDS = ("t", "window_start", "window_end", "join_time", "start", "end")
SMALL = pk.Engine(threads=3, task_bytes=1, adaptive=False)


def rows(r: Random) -> pa.Table:
    count = r.choice([0, 1, 3, 8, 20])
    times = [r.randint(-20, 60) for _ in range(count)]
    return pa.table(
        {
            "t": pa.array(sorted(times) if r.random() < 0.5 else times, pa.int64()),
            "k": pa.array([r.choice(["a", "b", None]) for _ in times], pa.string()),
            "j": pa.array([r.choice([1, 2, None]) for _ in times], pa.int32()),
            "v": pa.array([r.choice([None, 1, 2, -3, 7]) for _ in times], pa.int64()),
            "x": pa.array([r.choice([None, 0.5, -1.25, float("nan")]) for _ in times], pa.float64()),
        }
    )


def numbers(s: Any) -> list[str]:
    return [
        field.name
        for field in s.schema
        if pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
    ]


def keys(s: Any) -> list[str]:
    fit = (
        field.name for field in s.schema if pa.types.is_integer(field.type) or pa.types.is_string(field.type)
    )
    return [name for name in fit if name not in BOUNDS]


def by(r: Random, s: Any) -> Any:
    known = keys(s)
    return r.choice([None, *([r.choice(known), known[:2]] if known else [])])


def fresh(s: Any, **columns: Any) -> dict[str, Any]:
    """Name columns anew in each step."""
    return {f"{name}{len(s.schema)}": column for name, column in columns.items()}


def reduction(r: Random, s: Any) -> Any:
    of = r.choice(numbers(s))
    plain = ("sum", "min", "max", "median", "first", "last", "count_distinct", "mean", "var", "list", "mode")
    made = getattr(pk, r.choice(plain))(of)
    return r.choice([made, made, pk.count(), pk.count(where=pk.col(of) > 0), pk.sum(of) + pk.count()])


def window(r: Random) -> Any:
    return r.choice(
        [
            pk.tumbling(r.randint(1, 15)),
            pk.sliding(r.randint(1, 12), r.randint(1, 8), r.randint(-3, 3)),
            pk.session(r.randint(1, 9)),
            pk.rows(r.randint(1, 4), r.choice([None, 1, 5]), r.random() < 0.5),
            pk.unbounded(),
        ]
    )


def look_back(r: Random, s: Any, _: Any) -> Any:
    size = r.choice([r.randint(1, 12), pk.rows(r.randint(1, 4)), [3, pk.rows(2)]])
    spans = s.rolling(size, by=by(r, s), closed=r.choice(["right", "left"]), delay=r.choice([None, 2]))
    return r.choice([spans.agg, spans.with_columns])(**fresh(s, r=reduction(r, s)))


def joined(r: Random, s: Any, other: Any) -> Any:
    key, how = r.choice(keys(s)), r.choice(["inner", "left", "right", "full", "semi", "anti"])
    near = {"within": (r.randint(-6, 0), r.randint(0, 6))}
    return s.join(other, on=key, how=how, **r.choice([near, {"window": window(r)}]))


def as_signal(r: Random, s: Any, _: Any) -> Any:
    value = s.signal(
        r.choice(numbers(s))
    )  # of keys, rows of one time are in no promised order (docs/limits.md)
    made = (
        value.rolling(5).sum(),
        value.per(7).max(),
        value.window(9, every=4).count(),
        value - value.shift(3),
    )
    return r.choice(made).to_stream(f"s{len(s.schema)}")


VERBS: dict[str, Verb] = {
    "filter": lambda r, s, _: s.filter(pk.col(r.choice(numbers(s))) > r.choice([0, 1, -5])),
    "compute": lambda r, s, _: s.with_columns(**fresh(s, c=pk.col(r.choice(numbers(s))) * 2)),
    "drop": lambda r, s, _: s.drop(r.choice(s.schema.names)),
    "rename": lambda r, s, _: s.rename({r.choice(s.schema.names): f"n{len(s.schema)}"}),
    "window": lambda r, s, _: s.window(window(r), by=by(r, s)).agg(
        **fresh(s, a=reduction(r, s), b=reduction(r, s))
    ),
    "keep rows": lambda r, s, _: s.window(window(r), by=by(r, s)).with_columns(**fresh(s, w=reduction(r, s))),
    "apply": lambda r, s, _: s.window(window(r), by=by(r, s)).apply(
        lambda t: {"n": [t.num_rows]}, {"n": "int64"}
    ),
    "regroup": lambda r, s, _: s.window(by=by(r, s)).agg(**fresh(s, g=reduction(r, s))),
    "look back": look_back,
    "distinct": lambda r, s, _: s.distinct(
        r.choice(keys(s)), r.choice([None, 5]), r.choice(["first", "last"])
    ),
    "top_k": lambda r, s, _: s.top_k(
        r.randint(1, 2), by=r.choice(numbers(s)), ties=r.choice(["first", "all"])
    ),
    "union": lambda r, s, _: s.union(s.filter(pk.col(r.choice(numbers(s))) > 1)),
    "join": joined,
    "join itself": lambda r, s, _: joined(r, s, s),
    "as of": lambda r, s, other: s.join_asof(
        other, by=r.choice(keys(s)), direction=r.choice(["backward", "nearest"])
    ),
    "around": lambda r, s, other: s.join_rolling(other, by="k", within=(-4, r.randint(0, 6))).agg(
        **fresh(s, o=reduction(r, other))
    ),
    "signal": as_signal,
}


def chain(r: Random, source: Any, other: Any) -> Any:
    """Put a few verbs behind each other, leaving out what does not fit."""
    made = source
    for verb in r.choices(list(VERBS), k=r.randint(1, 4)):
        with suppress(pk.PenstockError, IndexError):  # no number, or no key, to choose from
            made = VERBS[verb](r, made, other)
    return made


def shown(found: list[dict[str, Any]]) -> list[str]:
    """Rows in one order, floats to nine digits."""
    return sorted(repr([f"{v:.9g}" if isinstance(v, float) else v for v in row.values()]) for row in found)


def in_batches(query: Any, data: dict[str, pa.Table], size: int) -> Any:
    """Run over batches; also what was counted."""
    run = query.run({name: iter(table.to_batches(max_chunksize=size)) for name, table in data.items()})
    return shown([row for batch in run for row in batch.to_pylist()]), run.metrics.counts | {"batches": 0}


def in_lives(query: Any, table: pa.Table, size: int) -> Any:
    """Run batch by batch, each from what the last one saved."""
    state, found = None, []
    for batch in [*table.to_batches(max_chunksize=size), None]:
        run = query.run({"a": [] if batch is None else [batch]}, state=state, final=batch is None)
        found += [row for made in run for row in made.to_pylist()]
        state = None if batch is None else run.state()
    return shown(found), run.metrics.counts | {"batches": 0}


@effort(24)
@given(seed=st.integers(0, 2**32))
def test_any_chain_of_verbs_gives_one_answer_in_any_batches_and_threads(seed: int) -> None:
    r = Random(seed)
    tables = {"a": rows(r), "b": rows(r)}
    a, b = (pk.stream(name, table.schema, time="t", lateness=1000) for name, table in tables.items())
    query = chain(r, a, b)
    data = {name: tables[name] for name in query.names}
    with suppress(pk.OverflowError):
        whole = query.collect(data)
        assert whole.schema == query.schema
        assert shown(query.collect(data, engine=SMALL).to_pylist()) == shown(whole.to_pylist())
        assert in_batches(query, data, 1)[0] == shown(whole.to_pylist())


@effort(24)
@given(seed=st.integers(0, 2**32))
def test_rows_that_come_late_are_the_same_in_any_batches_and_lives(seed: int) -> None:
    r = Random(seed)
    table = rows(r)
    source = pk.stream("a", table.schema, time="t", lateness=r.choice([0, 3, 10]))
    query = chain(r, source, source)
    with suppress(pk.OverflowError):
        wanted = in_batches(query, {"a": table}, 1)
        assert in_batches(query, {"a": table}, 3) == wanted
        assert in_lives(query, table, 4) == wanted
