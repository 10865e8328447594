"""Which rows are late for sessions: every way to run a query agrees with the plain definition, row by row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.ir.windows import LATE, fates, sessions_of
from penstock.types.windows import Session
from tests.oracle.effort import effort
from tests.restarts import ENGINES

SCHEMA = pa.schema({"t": pa.int64(), "k": pa.string(), "n": pa.int64(), "v": pa.int64()})
START = -(1 << 63)


@dataclass(frozen=True)
class Case:
    """Rows (t, k, n) in the order of arrival, their number being v; where batches are cut; what the query says."""

    rows: list[tuple[int, str | None, int]]
    cuts: list[int]
    gap: int
    lateness: int | None
    keys: tuple[str, ...]

    @property
    def table(self) -> pa.Table:
        t, k, n = zip(*self.rows, strict=True)
        return pa.table({"t": t, "k": k, "n": n, "v": range(len(t))}, schema=SCHEMA)

    @property
    def batches(self) -> list[pa.RecordBatch]:
        bounds = [0, *self.cuts, len(self.rows)]
        whole = self.table.combine_chunks().to_batches()[0]
        return [whole.slice(a, b - a) for a, b in pairwise(bounds) if b > a]

    def key(self, row: int) -> tuple[Any, ...]:
        _, k, n = self.rows[row]
        return tuple({"k": k, "n": n}[name] for name in self.keys)

    @property
    def watermarks(self) -> list[int]:
        """The watermark of the rows before each row."""
        reached, found = START, []
        for time, _, _ in self.rows:
            found.append(reached)
            reached = max(reached, time - (self.lateness or 0))
        return found

    @property
    def late(self) -> list[int]:
        """The numbers of the rows that are late."""
        times = [row[0] for row in self.rows]
        keys = [self.key(row) for row in range(len(times))]
        found = fates(Session(self.gap), zip(times, keys, self.watermarks, strict=True))
        return [row for row, fate in enumerate(found) if fate == LATE]

    def sessions(self) -> list[tuple[Any, ...]]:
        """List (start, end, keys, numbers of the rows), a session being emitted as soon as it is complete."""
        waiting: dict[tuple[Any, ...], dict[int, int]] = {}
        found = []
        late = set(self.late)
        for row, watermark in enumerate([*self.watermarks, None]):
            for key, times in waiting.items():
                for first, last in sessions_of(sorted(times.values()), self.gap):
                    if watermark is None or last + self.gap < watermark:
                        rows = [value for value, time in times.items() if first <= time <= last]
                        rows.sort(key=lambda value: (self.rows[value][0], value))
                        found.append((first, last + self.gap, *key, rows))
                        for value in rows:
                            del times[value]
            if row < len(self.rows) and row not in late:
                waiting.setdefault(self.key(row), {})[row] = self.rows[row][0]
        return found

    def stream(self, **more: Any) -> Any:
        return pk.stream("s", SCHEMA, time="t", lateness=self.lateness, **more)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    gap, spread = draw(st.integers(1, 12)), draw(st.integers(1, 60))
    size = draw(st.integers(1, 40))
    drift = draw(st.integers(0, 6))
    rows = [
        (
            drift * row + draw(st.integers(-spread, spread)),
            draw(st.sampled_from(["a", "b", None])),
            draw(st.integers(0, 1)),
        )
        for row in range(size)
    ]
    cuts = sorted(draw(st.sets(st.integers(1, size))))
    lateness = draw(st.none() | st.integers(0, 25))
    keys = draw(st.sampled_from([(), ("k",), ("n",), ("n", "k")]))
    return Case(rows, cuts, gap, lateness, keys)


def opened(case: Case, query: Any, restarts: bool, engine: pk.Engine) -> tuple[list[dict[str, Any]], Any]:
    """Push batch by batch, going on from saved state between any two if asked to; give the rows and the counts."""
    live, made = query.open(engine=engine), []
    for batch in case.batches:
        if restarts:
            live = query.open(state=live.state(), engine=engine)
        made += live.push(batch)
    made += live.finish()
    return [row for batch in made for row in batch.to_pylist()], live.metrics


def ordered(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=repr)


@effort(300)
@given(case=cases(), restarts=st.booleans(), engine=st.sampled_from(sorted(ENGINES)))
def test_rows_are_late_for_sessions_as_the_definition_says(case: Case, restarts: bool, engine: str) -> None:
    late: list[int] = []
    stream = case.stream(late_to=lambda batch: late.extend(batch["v"].to_pylist()))
    query = stream.window(pk.session(case.gap), by=list(case.keys) or None).agg(rows=pk.list("v"))
    rows, metrics = opened(case, query, restarts, ENGINES[engine])
    assert sorted(late) == case.late
    assert metrics.late == len(late)
    assert metrics.accepted + metrics.late == metrics.read == len(case.rows)
    assert ordered([tuple(row.values()) for row in rows]) == ordered(case.sessions())
    assert [row["window_end"] for row in rows] == sorted(row["window_end"] for row in rows)


def _attached(window: Any) -> Any:
    return window.with_columns(size=pk.count())


def _applied(window: Any) -> Any:
    columns = {"v": pa.int64(), "size": pa.int64()}
    return window.apply(
        lambda rows: pa.table({"v": rows["v"], "size": pa.array([len(rows)] * len(rows), pa.int64())}),
        pa.schema(columns),
    )


def _top(window: Any) -> Any:
    return window.with_columns(size=pk.count()).top_k(100, by="v")


CONSUMERS: dict[str, Callable[[Any], Any]] = {"with_columns": _attached, "apply": _applied, "top_k": _top}


@pytest.mark.parametrize("name", CONSUMERS)
@effort(60)
@given(case=cases(), restarts=st.booleans())
def test_all_that_is_made_of_sessions_has_the_same_late_rows(name: str, case: Case, restarts: bool) -> None:
    query = CONSUMERS[name](case.stream().window(pk.session(case.gap), by=list(case.keys) or None))
    rows, metrics = opened(case, query, restarts, pk.Engine(threads=1))
    found = [(row["window_start"], row["window_end"], row["v"], row["size"]) for row in rows]
    expected = [(start, end, v, len(group)) for start, end, *_, group in case.sessions() for v in group]
    assert ordered(found) == ordered(expected)
    assert (metrics.late, metrics.accepted) == (len(case.late), len(case.rows) - len(case.late))


@effort(60)
@given(case=cases(), restarts=st.booleans())
def test_holistic_aggregates_of_sessions_have_the_same_late_rows(case: Case, restarts: bool) -> None:
    query = case.stream().window(pk.session(case.gap), by=list(case.keys) or None)
    rows, metrics = opened(case, query.agg(m=pk.quantile("v", 1.0)), restarts, pk.Engine(threads=1))
    expected = [(start, end, max(group)) for start, end, *_, group in case.sessions()]
    assert ordered([(row["window_start"], row["window_end"], int(row["m"])) for row in rows]) == ordered(
        expected
    )
    assert metrics.late == len(case.late)


@effort(80)
@given(case=cases())
def test_a_union_of_a_stream_with_itself_is_judged_in_the_order_of_arrival(case: Case) -> None:
    """However rows are cut into batches: each batch reaches the sessions once for each input of the union."""
    source = case.stream()
    both = source.union(source.filter(pk.col("n") > 0))
    query = both.window(pk.session(case.gap), by=list(case.keys) or None).agg(rows=pk.list("v"))
    rows, metrics = opened(case, query, False, pk.Engine(threads=1))
    single = Case(case.rows, list(range(1, len(case.rows))), case.gap, case.lateness, case.keys)
    again, counts = opened(single, query, False, pk.Engine(threads=1))
    assert ordered([tuple(row.values()) for row in rows]) == ordered([tuple(row.values()) for row in again])
    assert metrics.late == counts.late


@effort(80)
@given(case=cases(), size=st.integers(2, 30))
def test_windows_behind_the_rows_of_sessions_hold_every_accepted_row(case: Case, size: int) -> None:
    """There a row behind the watermark may not begin a session earlier: windows may have passed it by."""
    sessions = case.stream().window(pk.session(case.gap), by=list(case.keys) or None)
    query = sessions.with_columns(size=pk.count()).select("t", "v").window(size).agg(n=pk.count())
    rows, metrics = opened(case, query, False, pk.Engine(threads=1))
    single = Case(case.rows, list(range(1, len(case.rows))), case.gap, case.lateness, case.keys)
    again, _ = opened(single, query, False, pk.Engine(threads=1))
    assert sum(row["n"] for row in rows) == metrics.accepted
    assert rows == again
    times, keys = [row[0] for row in case.rows], [case.key(row) for row in range(len(case.rows))]
    arrivals = zip(times, keys, case.watermarks, strict=True)
    assert metrics.late == fates(Session(case.gap), arrivals, begin_earlier=False).count(LATE)
    assert len({row["window_start"] for row in rows}) == len(rows)
