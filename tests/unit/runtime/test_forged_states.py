"""A state whose checksums are right but whose contents were changed works, or is refused with a typed error."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from typing import Any

import pyarrow as pa
import pytest

import penstock as pk
from penstock.state.format import encode_file, encode_table

SCHEMA = pa.schema(
    {"t": pa.int64(), "k": pa.string(), "n": pa.int64(), "e": pa.int64(), "v": pa.float64(), "i": pa.int64()}
)
EVENTS = pk.stream("events", SCHEMA, time="t", lateness=3)
OTHER = pk.stream("other", SCHEMA, time="t", lateness=3)
REGULAR = pk.stream("regular", {"v": "float64"}, time=pk.every(2))
X, R = EVENTS.signal("v", by="k"), REGULAR.signal("v")

QUERIES: dict[str, Any] = {
    "signal": X,
    "signal of texts": EVENTS.signal("k", by="n"),
    "signal that lasts": EVENTS.signal("v", by="k", lasting=5).rolling(7).sum(),
    "signal of intervals": EVENTS.signal("v", by="n", interval=("t", "e"), resolve="last"),
    "signal without keys": EVENTS.signal("v").shift(4).or_else(0.0),
    "signal of two columns": EVENTS.signal(["v", "i"], by=["k", "n"]),
    "signals of two streams": X + OTHER.signal("v", by="k").shift(2),
    "median of a signal": X.rolling(8).median(),
    "rows of a signal": X.rolling(pk.rows(3)).sum(),
    "filter": pk.feedback(lambda y: y * 0.5 + X),
    "longer filter": pk.feedback(lambda y: X - y[2] * 0.25 + y.shift(3) * 0.5, initial=1.0),
    "resampled": X.resample(every=3, method="last"),
    "chopped": X.chop(3).rolling(7).count(),
    "weighted": X.per(7).time_mean(),
    "stream of a signal": X.to_stream("p").window(10, by="k").agg(most=pk.max("p")),
    "regular": R.rolling(10).mean(),
    "regular filter": pk.feedback(lambda y: y * 0.5 + R),
    "regular stream": R.chop(6).to_stream(),
    "regular side by side": pk.align(a=R, b=R.shift(4)),
    "windows": EVENTS.window(10, every=5, by="k").agg(
        s=pk.sum("i"), least=pk.min("k"), m=pk.mean("v"), d=pk.std("v")
    ),
    "windows by number": EVENTS.window(10, by="n").agg(s=pk.sum("i"), f=pk.first("v"), b=pk.max_by("n", "i")),
    "medians": EVENTS.window(10, every=5, by="k").agg(m=pk.median("v")),
    "distinct counts": EVENTS.window(10, by="k").agg(n=pk.count_distinct("i"), q=pk.quantile("v", 0.3)),
    "sessions": EVENTS.window(pk.session(3), by="k").agg(m=pk.median("i")),
    "sums of sessions": EVENTS.window(pk.session(3), by="k").agg(s=pk.sum("i")),
    "count windows": EVENTS.window(pk.rows(3, every=2, partial=True), by="k").agg(
        s=pk.sum("i"), m=pk.median("v")
    ),
    "look-backs": EVENTS.rolling(5, by="k").agg(s=pk.sum("i")),
    "look-backs over rows": EVENTS.rolling(pk.rows(3), by="k").with_columns(s=pk.sum("i")),
    "distinct": EVENTS.distinct(["k", "n"]),
    "distinct for a while": EVENTS.distinct(["k"], within=8),
    "unbounded": EVENTS.window(pk.unbounded(), by="k").agg(s=pk.sum("i")),
    "windows of windows": EVENTS.window(3, by="k").agg(s=pk.sum("i")).window(9, by="k").agg(s=pk.sum("s")),
    "join": EVENTS.join(OTHER, on="k", window=10, how="left"),
    "join in a band": EVENTS.join(OTHER, on="k", within=(-3, 3)),
    "as-of": EVENTS.join_asof(OTHER, by="k", tolerance=5),
    "as-of forward": EVENTS.join_asof(OTHER, by="k", direction="forward", tolerance=5),
    "rolling join": EVENTS.join_rolling(OTHER, by="k", within=(-5, 0)).agg(s=pk.sum("i")),
    "union": EVENTS.union(OTHER).window(10, by="k").agg(s=pk.sum("i")),
    "attached": EVENTS.window(10, by="k").with_columns(s=pk.sum("i")),
}
# Grids over times a few billion ticks apart fill the memory of the machine, as rows of such times do.
NUMBERS = [0, 1, -1, 2, -2, 5, 100, 2**61, 2**62, -(2**62), 2**62 + 1, 2**63 - 1, -(2**63)]


def batch(chance: random.Random, begin: int) -> pa.RecordBatch:
    times = sorted(chance.randint(begin, begin + 12) for _ in range(14))
    columns = [
        times,
        [chance.choice(["a", "b", "cc", None]) for _ in times],
        [chance.choice([0, 3, 10**12, None]) for _ in times],
        [time + chance.randint(0, 9) for time in times],
        [chance.choice([1.0, 2.5, -1.0, None]) for _ in times],
        [chance.choice([1, -2, 2**50, None]) for _ in times],
    ]
    return pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], SCHEMA)


def feed(live: pk.Live, name: str, chance: random.Random, begin: int) -> list[pa.RecordBatch]:
    made = []
    for stream in stream_of(name).names:
        if stream == "regular":
            values = [chance.choice([1.0, 2.0, None]) for _ in range(14)]
            made += live.push(pa.record_batch({"v": pa.array(values, pa.float64())}))
        else:
            made += live.push(**{stream: batch(chance, begin)})
    return made


def stream_of(name: str) -> pk.Stream:
    query = QUERIES[name]
    return query._stream() if isinstance(query, pk.Signal) else query


@cache
def saved(name: str) -> tuple[dict[str, pa.Table], Any]:
    """The tables of a state, and what the query calls itself."""
    chance = random.Random(5)
    signature = stream_of(name).compiled().signature
    with QUERIES[name].open() as live:
        for begin in (0, 8, 20):
            feed(live, name, chance, begin)
        return live.state().tables(signature), signature


def encoded(tables: dict[str, pa.Table], signature: Any) -> bytes:
    """The bytes of a state, its checksums those of what is in it."""
    return encode_file(signature, {value: encode_table(table) for value, table in tables.items()})


def finish(name: str, state: bytes, chance: random.Random) -> list[dict[str, Any]]:
    """Go on from a state, save it again, and bring the run to its end."""
    with QUERIES[name].open(state=state) as live:
        made = feed(live, name, chance, 30)
        live.state()
        made += live.finish()
    return [row for table in made for row in table.to_pylist()]


def complaint(name: str, state: bytes, chance: random.Random) -> str:
    """The typed error with which a state is refused, or which its rows lead to; other errors are not caught."""
    try:
        finish(name, state, chance)
    except pk.PenstockError as error:
        return str(error)
    return ""


# --- changes --------------------------------------------------------------------------------------------------


def changed_value(value: Any, dtype: pa.DataType, chance: random.Random) -> Any:
    if chance.random() < 0.08:
        return None
    if pa.types.is_integer(dtype):
        near = value is not None and chance.random() < 0.5
        return value + chance.choice([-7, -1, 1, 7, 64]) if near else chance.choice(NUMBERS)
    if pa.types.is_floating(dtype):
        return chance.choice([0.0, -1.0, float("nan"), float("inf"), 1e300])
    if pa.types.is_boolean(dtype):
        return not value
    if pa.types.is_string(dtype) or pa.types.is_large_string(dtype):
        return chance.choice(["", "a", "zz", "x" * 1000])
    return bytes(chance.choice([0, 1, 127, 255]) for _ in value or b"")


def change_a_value(table: pa.Table, chance: random.Random) -> pa.Table:
    place = chance.randrange(table.num_columns)
    field, values = table.schema.field(place), table.column(place).to_pylist()
    if values:
        row = chance.randrange(len(values))
        values[row] = changed_value(values[row], field.type, chance)
    try:
        return table.set_column(place, field.name, pa.array(values, field.type))
    except (pa.ArrowException, OverflowError):  # the type does not hold such a number
        return table


def change_a_type(table: pa.Table, chance: random.Random) -> pa.Table:
    place = chance.randrange(table.num_columns)
    dtype = chance.choice([pa.int8(), pa.int64(), pa.string(), pa.float64(), pa.binary(16)])
    return table.set_column(place, table.column_names[place], pa.nulls(table.num_rows, dtype))


def drop_a_column(table: pa.Table, chance: random.Random) -> pa.Table:
    return table.drop_columns([chance.choice(table.column_names)])


def drop_rows(table: pa.Table, chance: random.Random) -> pa.Table:
    return table.slice(0, chance.randint(0, table.num_rows))


def repeat_a_row(table: pa.Table, chance: random.Random) -> pa.Table:
    return pa.concat_tables([table, table.slice(chance.randrange(table.num_rows), 1)])


def mix_rows(table: pa.Table, chance: random.Random) -> pa.Table:
    return table.take(pa.array(chance.sample(range(table.num_rows), table.num_rows), pa.int64()))


CHANGES: list[Callable[[pa.Table, random.Random], pa.Table]] = [
    *([change_a_value] * 16), change_a_type, drop_a_column, drop_rows, repeat_a_row, mix_rows,
]  # fmt: skip


@pytest.mark.parametrize("name", QUERIES)
def test_a_changed_state_works_or_is_refused(name: str) -> None:
    tables, signature = saved(name)
    for seed in range(24):
        chance = random.Random(f"{name} {seed}")
        forged = dict(tables)
        for _ in range(chance.choice([1, 1, 2])):
            part = chance.choice(sorted(value for value in forged if forged[value].num_rows))
            forged[part] = chance.choice(CHANGES)(forged[part], chance)
        assert "please report this" not in complaint(name, encoded(forged, signature), chance), seed


@pytest.mark.parametrize("name", QUERIES)
def test_a_state_with_changed_bytes_works_or_is_refused(name: str) -> None:
    tables, signature = saved(name)
    for seed in range(12):
        chance = random.Random(f"{name} {seed}")
        chunks = {value: bytearray(encode_table(table)) for value, table in tables.items()}
        part = chunks[chance.choice(sorted(chunks))]
        for _ in range(chance.choice([1, 1, 2, 4])):
            place = chance.randrange(len(part))
            part[place] = chance.choice([0, 1, 127, 255, part[place] ^ 1 << chance.randrange(8)])
        state = encode_file(signature, {value: bytes(data) for value, data in chunks.items()})
        assert "please report this" not in complaint(name, state, chance), seed


@pytest.mark.parametrize("name", QUERIES)
def test_a_state_that_was_not_changed_goes_on(name: str) -> None:
    tables, signature = saved(name)
    chance = random.Random(5)
    with QUERIES[name].open() as live:
        for begin in (0, 8, 20):
            feed(live, name, chance, begin)
        made = feed(live, name, random.Random(7), 30) + live.finish()
    wanted = [row for table in made for row in table.to_pylist()]
    found = finish(name, encoded(tables, signature), random.Random(7))
    assert sorted(map(str, found)) == sorted(map(str, wanted))


REFUSED = [
    ("signal", "partitions", "partition", lambda old: [value + 1 for value in old]),
    ("signal", "partitions", "partition", lambda old: [0] * len(old)),
    ("signal", "partitions", "emitted", lambda old: [-(2**63)] * len(old)),
    ("signal", "partitions", "key:k", lambda old: ["a"] * len(old)),
    ("filter", "filter_", "partition", lambda old: [-1] * len(old)),
    ("filter", "filter_", "partition", lambda old: [value + 9 for value in old]),
    ("filter", "filter_", "kind", lambda old: [1] * len(old)),
    ("regular", "marks", "done", lambda old: [2**62]),
    ("regular", "marks", "base_0", lambda old: [-5]),
    ("regular filter", "history_0", "place", lambda old: [0] * len(old)),
    ("join", "marks", "both", lambda old: [-(2**62)]),
    ("windows", "marks", "rows", lambda old: [-1]),
]


@pytest.mark.parametrize(("name", "part", "which", "make"), REFUSED)
def test_numbers_that_no_run_saves_are_refused(
    name: str, part: str, which: str, make: Callable[[list[Any]], list[Any]]
) -> None:
    tables, signature = saved(name)
    full = next(
        value for value, table in tables.items() if f"/{part}" in value and which in table.column_names
    )
    values = pa.array(make(tables[full][which].to_pylist()), tables[full][which].type)
    place = tables[full].column_names.index(which)
    forged = {**tables, full: tables[full].set_column(place, which, values)}
    with pytest.raises(pk.StateError):
        QUERIES[name].open(state=encoded(forged, signature))
