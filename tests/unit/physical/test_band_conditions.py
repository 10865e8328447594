"""Conditions that are searched for: what bounds a right column, and that no other pairs are looked at."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk
from penstock.ir import nodes as jn
from penstock.ir.interpret import interpret
from penstock.ir.samples import to_rows
from penstock.operators.joins.results import Residual
from penstock.physical.choose_join import band_of
from penstock.translate import to_ir

X, Y, Z = pk.left("x"), pk.right("y"), pk.right("z")
SCHEMAS = (
    {"t": "int64", "k": "int64", "x": "int64"},
    {"t": "int64", "k": "int64", "y": "int64", "z": "float64"},
)
JOIN_KINDS = ("inner", "left", "right", "full", "semi", "anti")


def found(where: pk.Expr) -> tuple[str, int, int] | None:
    a, b = (pk.stream(name, schema, time="t") for name, schema in zip("ab", SCHEMAS, strict=True))
    program = to_ir(a.join(b, window=10, where=where).plan)
    joined = next(this for this in program.objects if isinstance(this.body, jn.Join))
    sides = {this.name: this for this in program.objects}
    assert joined.body.where is not None
    band = band_of(joined.body.where, sides[joined.body.left].schema, sides[joined.body.right].schema)
    return None if band is None else (band.column, len(band.lower), len(band.upper))


@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        (X < Y, ("y", 1, 0)),
        (X == Y, ("y", 1, 1)),
        ((Y - 5 <= X) & (X < Y + 5), ("y", 1, 1)),
        ((Y - 5 <= X) & (X * 2 < 3 + Y) & (Y != 4), ("y", 1, 1)),
        ((Z > 0.5) & (Y - 1 + 2 <= X), ("y", 0, 1)),
        (5 - Y <= X, None),  # falls as y grows
        (Y * 2 <= X, None),
        (Y + Z <= X, None),
        (Y <= 5, None),
        ((X < Y) | (X > Y + 3), None),
        (Z + float("inf") > X, None),
        (Z - 1 > X, None),  # compared as another kind of number than x is
    ],
)
def test_bounds_of_a_right_column_are_found(where, wanted) -> None:
    assert found(where) == wanted


@pytest.mark.parametrize("on", [None, "k"])
@pytest.mark.parametrize("how", JOIN_KINDS)
@pytest.mark.parametrize("where", [(Y - 5 <= X) & (X < Y + 5), (Y >= X - 5) & (Y < X + 5)])
def test_no_join_looks_at_more_pairs_than_lie_in_the_band(where, how, on) -> None:
    rng, rows, asked = np.random.default_rng(3), 3000, []
    tables = [
        pa.table({"t": np.arange(rows), "k": np.zeros(rows, int), name: rng.integers(0, rows * 2, rows)})
        for name in "xy"
    ]
    a, b = (pk.from_arrow(table, time="t", name=name) for table, name in zip(tables, "ab", strict=True))
    among = Residual.among

    def counting(self, pairs, left, right):
        asked.append(len(pairs[0]))
        return among(self, pairs, left, right)

    with patch.object(Residual, "among", counting):
        a.join(b, on=on, window=rows, how=how, where=where).collect()
    apart = tables[0]["x"].to_numpy()[:, None] - tables[1]["y"].to_numpy()[None, :]
    assert sum(asked) <= np.count_nonzero(abs(apart) <= 5)


@pytest.mark.parametrize("how", ["inner", "anti"])
def test_a_sum_that_does_not_fit_is_an_error_as_if_every_pair_were_looked_at(how) -> None:
    tables = {
        "a": pa.table({"t": [0, 1], "k": [1, 1], "x": [0, 5]}),
        "b": pa.table({"t": [0, 1], "k": [1, 1], "y": [3, 2**63 - 1], "z": [0.0, 0.0]}),
    }
    a, b = (pk.stream(name, schema, time="t") for name, schema in zip("ab", SCHEMAS, strict=True))
    query = a.join(b, window=10, how=how, where=(Y - 3 <= X) & (X < Y + 3))
    with pytest.raises(pk.OverflowError):
        interpret(to_ir(query.plan), {name: to_rows(table) for name, table in tables.items()})
    with pytest.raises(pk.OverflowError):
        query.collect(tables)
