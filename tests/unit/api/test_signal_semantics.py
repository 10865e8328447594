"""The table of signals in docs/semantics.md holds, compiled and interpreted."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

import penstock as pk
from penstock.ir.interpret import interpret
from penstock.ir.samples import to_rows
from penstock.translate import to_ir
from tests.unit.expr.semantics import table

SIGNALS = table("signal | samples | intervals")


def samples_of(text: str) -> pa.Table:
    pairs = [value.split(":") for value in text.split()]
    values = [None if value == "null" else float(value) for _, value in pairs]
    return pa.table({"t": pa.array([int(t) for t, _ in pairs]), "v": pa.array(values, pa.float64())})


def intervals_of(text: str) -> list[tuple[int, int | None, float]]:
    found = re.findall(r"\[(-?\d+), (-?\d*)\): (\S+)", text)
    return [(int(start), int(end) if end else None, float(value)) for start, end, value in found]


@pytest.mark.parametrize(("signal", "samples", "intervals"), SIGNALS)
def test_a_signal_has_the_intervals_of_the_table(signal: str, samples: str, intervals: str) -> None:
    data = samples_of(samples)
    x = pk.from_arrow(data, time="t", name="s").signal("v")
    made = eval(signal, {"pk": pk, "x": x})
    wanted = intervals_of(intervals)
    assert wanted
    for rows in (
        to_rows(made.collect()),
        interpret(to_ir(made.plan), {"s": to_rows(data)}),
        to_rows(made.collect(engine=pk.Engine(backend="interpret"))),
    ):
        assert [(row["start"], row["end"], pytest.approx(row["value"])) for row in rows] == wanted
