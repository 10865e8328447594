"""The printed form of programs: tests/fixtures/ir/show.txt."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from penstock.ir.show import show
from penstock.plan import nodes as pl
from penstock.translate import to_ir
from penstock.types.time import Time, length_of
from penstock.types.windows import CarriedWindow, TimeWindow
from tests.unit.passes.cases import (
    EVENTS,
    FLOAT,
    SLIDING,
    TOTALS,
    VIEWS,
    agg,
    attach,
    call,
    col,
    lit,
    where,
    window,
)

HOSTILE = 'a"b\n~x[t] = { `} 🐟'
ODD = pl.Source(HOSTILE, pa.schema({"ts": pa.int64(), HOSTILE: pa.float64()}), Time("ts", pa.int64(), None))
REGULAR = pl.Source("ecg", pa.schema({"mv": FLOAT}), Time("time", pa.timestamp("ms"), "ms", period=4))

SHOWN = {
    "a window, then a filter": where(TOTALS, call("gt", col("total"), lit(3))),
    "every row with its windows": attach(
        VIEWS, "k", span=SLIDING, share=call("div", col("v"), agg("sum", col("v")))
    ),
    "a window of windows": window(TOTALS, span=CarriedWindow(), most=agg("max", col("total"))),
    "chosen samples": pl.TopK(TOTALS, 3, "total", "all"),
    "distinct samples of a union": pl.Distinct(pl.Union((EVENTS, VIEWS)), ("k", "kind"), "last"),
    "implied time": window(REGULAR, span=TimeWindow(1000, 1000), top=agg("max", col("mv"))),
    "hostile names are quoted": window(
        ODD, HOSTILE, span=TimeWindow(7, 7), n=agg("count", where=call("is_null", col(HOSTILE)))
    ),
}


def test_programs_print_as_their_fixture_says(golden: Callable[[str, str], None]) -> None:
    golden("ir/show.txt", "\n".join(f"# {name}\n\n{show(to_ir(plan))}\n" for name, plan in SHOWN.items()))


def test_hostile_names_cannot_break_a_line() -> None:
    assert all(
        not line.startswith("~x[t]") for line in show(to_ir(SHOWN["hostile names are quoted"])).splitlines()
    )


@pytest.mark.parametrize(
    ("count", "unit", "expected"),
    [
        (10_000_000, "us", "10s"),
        (90, "s", "90s"),
        (120, "s", "2m"),
        (1, "d", "1d"),
        (3, "ns", "3ns"),
        (1_500, "us", "1500us"),
        (-3_600, "s", "-1h"),
        (7, None, "7"),
        (0, "us", "0ns"),
    ],
)
def test_ticks_print_in_the_largest_unit_that_divides_them(
    count: int, unit: str | None, expected: str
) -> None:
    assert length_of(count, unit) == expected
