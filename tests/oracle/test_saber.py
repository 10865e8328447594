"""SABER's application queries in SQL = plain Python over the same rows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import cache

import pyarrow as pa
import pytest

import penstock as pk
from examples.saber import LRB1, LRB2, queries

Row = dict[str, object]


@cache
def made() -> dict[str, pk.Stream]:
    return queries()


@cache
def rows_of(name: str) -> list[Row]:
    return made()[name].collect().to_pylist()


def source(name: str) -> list[Row]:
    (data,) = made()[name].data.values()
    return [row for batch in data.batches(data.schema.names) for row in batch.to_pylist()]


def sliding(rows: Iterable[Row], size: int) -> Iterator[tuple[int, list[Row]]]:
    """The windows [end - size, end) that hold a row, one for each second."""
    rows = list(rows)
    last = max(int(row["timestamp"]) for row in rows)
    first = min(int(row["timestamp"]) for row in rows)
    for end in range(first + 1, last + size + 1):
        inside = [row for row in rows if end - size <= row["timestamp"] < end]
        if inside:
            yield end, inside


def grouped(rows: Iterable[Row], *names: str) -> dict[tuple, list[Row]]:
    found: dict[tuple, list[Row]] = defaultdict(list)
    for row in rows:
        found[tuple(row[name] for name in names)].append(row)
    return found


def mean(rows: list[Row], name: str) -> float:
    return sum(row[name] for row in rows) / len(rows)


def same(got: list[Row], wanted: Iterable[tuple]) -> None:
    """Compare as bags; floats to twelve digits."""
    ours = Counter(tuple(_rounded(value) for value in row.values()) for row in got)
    assert ours == Counter(tuple(_rounded(value) for value in row) for row in wanted)


def _rounded(value: object) -> object:
    return float(f"{value:.10g}") if isinstance(value, float) else value


def averages(rows: Iterable[Row], size: int, value: str, *keys: str) -> list[tuple]:
    return [
        (end, *key, mean(group, value))
        for end, inside in sliding(rows, size)
        for key, group in grouped(inside, *keys).items()
    ]


def test_cm1_sums_by_category() -> None:
    wanted = [
        (end, *key, sum(row["cpu"] for row in group))
        for end, inside in sliding(source("CM1"), 60)
        for key, group in grouped(inside, "category").items()
    ]
    same(rows_of("CM1"), wanted)


def test_cm2_averages_by_job_of_one_type_of_event() -> None:
    events = [row for row in source("CM2") if row["eventType"] == 1]
    same(rows_of("CM2"), averages(events, 60, "cpu", "jobId"))


def test_sg1_and_sg2_average_over_an_hour() -> None:
    """Means over thousands of windows, added up anew for each: every twentieth is looked at."""
    grid = source("SG1")
    for name, keys in (("SG1", ()), ("SG2", ("plug", "household", "house"))):
        got = [row for row in rows_of(name) if row["timestamp"] % 20 == 0]
        wanted = [
            (end, *key, mean(group, "value"))
            for end in range(20, 3800, 20)
            if (inside := [row for row in grid if end - 3600 <= row["timestamp"] < end])
            for key, group in grouped(inside, *keys).items()
        ]
        same(got, wanted)


def test_sg3_counts_by_house_the_plugs_above_the_average() -> None:
    over = {row["timestamp"]: row["globalAvgLoad"] for row in rows_of("SG1")}
    outliers = [row for row in rows_of("SG2") if row["localAvgLoad"] > over[row["timestamp"]]]
    wanted = [(*key, len(group)) for key, group in grouped(outliers, "timestamp", "house").items()]
    same(rows_of("SG3"), wanted)


def segments() -> list[Row]:
    return [{**row, "segment": row["position"] // 5280} for row in source("LRB1")]


def test_lrb1_gives_each_row_once_with_a_whole_segment() -> None:
    names = ("timestamp", "vehicle", "speed", "highway", "partition", "direction", "segment")
    same(rows_of("LRB1"), [tuple(row[name] for name in names) for row in segments()])
    assert made()["LRB1"].schema.field("segment").type == pa.int64()


def test_lrb2_gives_the_last_report_of_each_vehicle_seen_lately() -> None:
    names = ("timestamp", "vehicle", "speed", "highway", "partition", "direction", "segment")
    rows = segments()
    wanted = []
    for end, inside in sliding(rows, 30):
        before = [row for row in rows if row["timestamp"] < end]
        last = {row["vehicle"]: row for row in before}
        seen = {row["vehicle"] for row in inside}
        wanted += {tuple(last[vehicle][name] for name in names) for vehicle in seen}
    same(rows_of("LRB2"), wanted)


def test_the_last_report_may_be_older_than_the_window() -> None:
    lately = pk.from_arrow(pa.table({"timestamp": [40, 41], "vehicle": [1, 2]}), time="timestamp")
    reports = pk.from_arrow(
        pa.table({"timestamp": [1, 5, 41], "vehicle": [1, 1, 1], "speed": [7.0, 8.0, 9.0]}), time="timestamp"
    )
    text = """select distinct window_end, L.vehicle, L.speed from A [range 2 slide 1], Reports [partition by vehicle rows 1] as L
              where A.vehicle = L.vehicle"""
    found = pk.sql(text, A=lately, Reports=reports).collect().to_pylist()
    assert [tuple(row.values()) for row in found] == [(41, 1, 8.0), (42, 1, 9.0)]


def test_lrb3_gives_segments_whose_average_is_low() -> None:
    wanted = [
        row for row in averages(segments(), 300, "speed", "highway", "direction", "segment") if row[-1] < 40.0
    ]
    assert wanted
    same(rows_of("LRB3"), wanted)


def test_lrb4_counts_vehicles_by_segment() -> None:
    keys = ("highway", "direction", "segment")
    wanted = [
        (end, *key, len({row["vehicle"] for row in group}))
        for end, inside in sliding(segments(), 30)
        for key, group in grouped(inside, *keys).items()
    ]
    same(rows_of("LRB4"), wanted)


@pytest.mark.parametrize("name", ["CM1", "SG3", "LRB2", "LRB4"])
def test_batch_by_batch_gives_the_same(name: str) -> None:
    query = made()[name]
    (stream,) = query.names
    (data,) = query.data.values()
    whole = pa.Table.from_batches(data.batches(data.schema.names))
    batches = list(query.run(whole.to_batches(max_chunksize=370)))
    assert len(batches) > 1
    same(
        [row for batch in batches for row in batch.to_pylist()],
        [tuple(row.values()) for row in rows_of(name)],
    )
    assert stream in ("TaskEvents", "SmartGridStr", "PosSpeedStr")


def test_what_follows_may_be_one_text_with_relations_in_front() -> None:
    roads = made()["LRB1"]
    inner = LRB1.replace("PosSpeedStr", "Positions").strip()
    text = f"({inner}) as SegSpeedStr {LRB2}"
    (name,) = roads.names
    positions = pk.stream(name, roads.compiled().plan.input.input.schema, time="timestamp")  # type: ignore[union-attr]
    query = pk.sql(text, Positions=positions)
    (data,) = roads.data.values()
    got = query.collect(pa.Table.from_batches(data.batches(data.schema.names))).to_pylist()
    same(got, [tuple(row.values()) for row in rows_of("LRB2")])
