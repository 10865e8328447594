"""One operator's driver beside its plain twin: the same rows, whatever the split of the input into batches.

Sums of the drawn floats are exact, so results are compared bit by bit. Rows arrive out of order by at most the lateness
of their stream: none is late, and results leave while rows still come.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

import penstock as pk
from penstock.compile import compile_plan
from penstock.ir.samples import to_rows
from penstock.operators.interpret import interpret
from penstock.physical import nodes as ph

LATENESS = 5
FIELDS = {"ts": "int64", "k": "string", "v": "int64", "f": "float64"}
SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.string(), "v": pa.int64(), "f": pa.float64()})
LEFT, RIGHT = (pk.stream(name, FIELDS, time="ts", lateness=LATENESS) for name in ("left", "right"))
Build = Callable[[], pk.Stream]
Rows = Sequence[tuple[Any, ...]]

_KEYS = st.sampled_from([None, "a", "b", "c"])
_INTEGERS = st.none() | st.integers(-9, 9) | st.sampled_from([-(1 << 40), 1 << 40])
_FLOATS = st.none() | st.integers(-40, 40).map(lambda quarters: quarters / 4) | st.just(math.nan)


@st.composite
def rows(draw: st.DrawFn, most: int = 24) -> Rows:
    """Draw rows whose times rise, but for at most the lateness."""
    steps = draw(st.lists(st.integers(0, 7), max_size=most))
    latest, found = draw(st.integers(-60, 10)), []
    for step in steps:
        latest += step
        values = draw(_KEYS), draw(_INTEGERS), draw(_FLOATS)
        found.append((latest - draw(st.integers(0, LATENESS)), *values))
    return found


def table_of(given: Rows) -> pa.Table:
    columns = list(zip(*given, strict=True)) or [[]] * len(SCHEMA)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def batches_of(given: Rows, size: int) -> list[pa.RecordBatch]:
    return table_of(given).combine_chunks().to_batches(max_chunksize=size)


@cache
def built(build: Build) -> pk.Stream:
    """Build a query once: its kernels are compiled for the first example."""
    return build()


@cache
def physical(query: pk.Stream, mode: ph.Mode) -> ph.Plan:
    return compile_plan(query.plan).physical(mode)


def operators_of(query: pk.Stream, mode: ph.Mode = "unbounded") -> set[str]:
    return {type(node.op).__name__ for node in physical(query, mode).nodes}


def assert_as_its_twin(query: pk.Stream, inputs: Mapping[str, Rows], size: int) -> None:
    """Check both modes: everything at once, and batches of `size` rows."""
    tables = {name: table_of(given) for name, given in inputs.items()}
    streamed = list(query.run({name: iter(batches_of(given, size)) for name, given in inputs.items()}))
    found: dict[ph.Mode, pa.Table] = {
        "bounded": query.collect(tables),
        "unbounded": pa.Table.from_batches(streamed, query.schema),
    }
    for mode, result in found.items():
        expected = interpret(physical(query, mode), {name: to_rows(table) for name, table in tables.items()})
        assert _texts(to_rows(result)) == _texts(expected), mode


def _texts(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Rows as texts, in any order: NaN equals itself, and -0.0 is 0.0."""
    return sorted(
        repr([(name, value + 0.0 if isinstance(value, float) else value) for name, value in row.items()])
        for row in found
    )
