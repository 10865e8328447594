"""Fields of structs: a query over nested columns gives what the same query gives over flat ones, and the interpreter agrees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.ir.interpret import interpret
from penstock.ir.samples import to_rows
from penstock.translate import to_ir
from tests.oracle.effort import effort

HOSTILE = 'a.b"`\n\\'  # dots, quotes and a newline in the name of a field
DEEP = pa.struct(
    {
        "v": pa.int64(),
        "x": pa.float64(),
        "at": pa.timestamp("us"),
        "code": pa.dictionary(pa.int32(), pa.string()),
    }
)
TYPE = pa.struct({"k": pa.string(), HOSTILE: pa.int64(), "deep": DEEP})
SCHEMA = pa.schema({"t": pa.int64(), "s": TYPE})
PATHS = {
    "k": ("k",),
    "n": (HOSTILE,),
    "v": ("deep", "v"),
    "x": ("deep", "x"),
    "at": ("deep", "at"),
    "code": ("deep", "code"),
}
NESTED = pk.stream("rows", SCHEMA, time="t")
FLAT = pk.stream(
    "rows",
    {
        "t": "int64",
        "k": "string",
        "n": "int64",
        "v": "int64",
        "x": "float64",
        "at": "timestamp[us]",
        "code": "dictionary",
    },
    time="t",
)

Column = Callable[[str], Any]
QUERIES: dict[str, Callable[[Any, Column], Any]] = {
    "filter": lambda s, c: s.filter(c("v") > 1).select("t", k=c("k"), n=c("n")),
    "filter by text": lambda s, c: s.filter((c("k") == "a") | (c("code") == "u")).select("t", x=c("x")),
    "filter by null": lambda s, c: s.filter(c("x").is_null()).select("t", v=c("v")),
    "text": lambda s, c: s.select("t", up=c("k").str.to_uppercase(), size=c("code").str.len_chars()),
    "choice": lambda s, c: s.select("t", z=pk.when(c("v") > c("n")).then(c("x")).otherwise(0.5)),
    "time": lambda s, c: s.select("t", y=c("at").dt.second(), e=c("at").dt.truncate("1s")),
    "membership": lambda s, c: s.filter(c("k").is_in(["a", "c"])).select("t", v=c("v")),
    "window": lambda s, c: s.window(5, by=[c("k").alias("k")]).agg(
        total=c("v").sum(), low=c("x").min(), most=c("k").max(), rows=pk.count(where=c("n") > 0)
    ),
    "window by a number": lambda s, c: s.window(5, by=[c("v").alias("v")]).agg(at=c("at").max()),
    "sliding": lambda s, c: s.window(6, every=2, by=[c("code").alias("code")]).agg(total=c("v").sum()),
    "session": lambda s, c: s.window(pk.session(3), by=[c("k").alias("k")]).agg(total=c("v").sum(), mid=c("v").median()),
    "rows": lambda s, c: s.window(pk.rows(2), by=[c("k").alias("k")]).agg(total=c("v").sum(), last=c("code").last()),
    "rolling": lambda s, c: s.rolling(5, by=[c("k").alias("k")]).agg(total=c("v").sum(), top=c("n").max()),
    "rolling rows": lambda s, c: s.rolling(pk.rows(3)).agg(total=c("v").sum()),
    "having": lambda s, c: s.window(5).agg(total=c("v").sum()).filter(pk.col("total") > 0),
    "distinct": lambda s, c: s.select("t", k=c("k"), v=c("v")).distinct(["k", "v"]),
    "signal": lambda s, c: s.select("t", v=c("v")).signal("v", resolve="max").rolling(4).sum().to_stream("total"),
    "join": lambda s, c: s.select("t", k=c("k"), v=c("v")).join(s.select("t", k=c("k"), n=c("n")), on="k", window=pk.tumbling(5)),
}  # fmt: skip


def field(name: str) -> Any:
    return pk.col("s").struct.field(*PATHS[name])


def member(value: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        value = None if value is None else value[name]
    return value


def flat(table: pa.Table) -> pa.Table:
    """Flatten in plain Python, which is the definition."""
    structs = table["s"].to_pylist()
    types = dict(zip(FLAT.schema.names, FLAT.schema.types, strict=True))
    columns = {
        name: pa.array([member(struct, path) for struct in structs], types[name])
        for name, path in PATHS.items()
    }
    return pa.table({"t": table["t"], **columns})


numbers = st.none() | st.integers(-3, 3)
deep = st.none() | st.fixed_dictionaries(
    {
        "v": numbers,
        "x": st.none() | st.sampled_from([0.5, -1.0, 2.25]),
        "at": st.none() | st.integers(-(10**7), 10**7),
        "code": st.none() | st.sampled_from(["u", "w"]),
    }
)
structs = st.none() | st.fixed_dictionaries(
    {"k": st.none() | st.sampled_from(["a", "b", "c"]), HOSTILE: numbers, "deep": deep}
)


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    rows = draw(st.lists(structs, max_size=12))
    times = sorted(draw(st.lists(st.integers(-8, 12), min_size=len(rows), max_size=len(rows))))
    table = pa.table({"t": pa.array(times, pa.int64()), "s": pa.array(rows, TYPE)})
    return table.slice(draw(st.integers(0, 2)))


def shown(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


@pytest.mark.parametrize("name", QUERIES)
@given(data=st.data())
@effort(12)
def test_nested_columns_give_what_flat_ones_give(name: str, data: st.DataObject) -> None:
    table = data.draw(tables())
    nested = QUERIES[name](NESTED, field)
    expected = shown(to_rows(QUERIES[name](FLAT, pk.col).collect(flat(table))))
    assert shown(to_rows(nested.collect(table))) == expected
    assert shown(interpret(to_ir(nested.plan), {"rows": to_rows(table)})) == expected
    run = nested.run(table.to_batches(max_chunksize=data.draw(st.integers(1, 4))))
    assert shown([row for batch in run for row in to_rows(pa.table(batch))]) == expected
