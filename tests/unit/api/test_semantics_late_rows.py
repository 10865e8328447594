"""The table of late rows in docs/semantics.md holds, by the plain definition and for queries that run."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import penstock as pk
from penstock.ir.windows import LATE, PARTLY_LATE, fates
from penstock.translate import to_ir
from tests.unit.expr.semantics import table

CASES = table("window | times | late | partly late")
START_OF_TIME = -(1 << 63)


def numbers(text: str) -> list[int]:
    return [int(value) for value in text.split()]


def query_of(window: str, late: list[int]) -> Any:
    source = pk.stream("s", {"t": "int64"}, time="t", late_to=lambda rows: late.extend(rows["t"].to_pylist()))
    return source.window(eval(window, {"pk": pk})).agg(n=pk.count())


@pytest.mark.parametrize(
    ("window", "times", "late", "partly"), CASES, ids=[f"{case[0]} on {case[1]}" for case in CASES]
)
def test_rows_are_late_as_the_document_says(window: str, times: str, late: str, partly: str) -> None:
    found: list[int] = []
    query = query_of(window, found)
    for size in (1, 100):
        found.clear()
        live = query.open()
        for begin in range(0, len(numbers(times)), size):
            live.push(pa.table({"t": numbers(times)[begin : begin + size]}))
        assert found == numbers(late)
        assert live.metrics.partly_late == len(numbers(partly))


@pytest.mark.parametrize(
    ("window", "times", "late", "partly"), CASES, ids=[f"{case[0]} on {case[1]}" for case in CASES]
)
def test_the_plain_definition_says_the_same(window: str, times: str, late: str, partly: str) -> None:
    objects = to_ir(query_of(window, []).plan).objects
    domain = next(this.body.domain for this in objects if hasattr(this.body, "domain"))
    reached, arrivals = START_OF_TIME, []
    for time in numbers(times):
        arrivals.append((time, None, reached))
        reached = max(reached, time)
    said = list(zip(numbers(times), fates(domain, arrivals), strict=True))
    assert [time for time, fate in said if fate == LATE] == numbers(late)
    assert [time for time, fate in said if fate == PARTLY_LATE] == numbers(partly)
