"""Programs that show where a join is aggregated without its pairs, and where it is not."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from penstock.expr.nodes import Aggregate, Call, Column, Expr, Field, Literal
from penstock.plan import nodes as pl
from penstock.types.time import Time
from penstock.types.windows import CarriedWindow, InWindow, TimeWindow

_SCHEMA = pa.schema({"t": pa.int64(), "k": pa.int64(), "v": pa.int64(), "f": pa.float64()})
_CLOCK = Time("t", pa.int64(), None)
_LEFT, _RIGHT = pl.Source("a", _SCHEMA, _CLOCK), pl.Source("b", _SCHEMA, _CLOCK)
_TEN = TimeWindow(10, 10)
_JOIN = pl.Join(_LEFT, _RIGHT, (("k", "k"),), InWindow(_TEN, _TEN), "inner", None, "_right")


def _total(plan: pl.Plan, by: tuple[str, ...], **named: Expr) -> pl.Plan:
    fields = tuple(Field(name, expr) for name, expr in named.items())
    return pl.Aggregate(plan, CarriedWindow(), by, fields)


def _of(function: str, *names: str) -> Expr:
    return Aggregate(function, tuple(map(Column, names)))


_POSITIVE = Call("gt", (Column("f_right"), Literal(0.0, pa.float64())))

FUSE_JOINS: dict[str, pl.Plan] = {
    "by the keys: counts and sums multiply": _total(
        _JOIN, ("k",), n=_of("count"), s=_of("sum", "f"), m=_of("max", "v_right")
    ),
    "by nothing: products are added up": _total(_JOIN, (), n=_of("count")),
    "a filter of one side's rows": _total(pl.Filter(_JOIN, _POSITIVE), ("k",), n=_of("count")),
    "whole numbers are summed in halves": _total(_JOIN, ("k",), s=_of("sum", "v")),
    "a median needs the pairs": _total(_JOIN, ("k",), m=_of("median", "v")),
    "so does an outer join": _total(replace(_JOIN, how="left"), ("k",), n=_of("count")),
}
