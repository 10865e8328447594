"""What queries count adds up, and is written as Prometheus reads it."""

from __future__ import annotations

from types import SimpleNamespace

from pyspark.sql import Row

import penstock as pk

COUNTS = {
    "read": 10,
    "accepted": 7,
    "late": 1,
    "malformed": 0,
    "filtered": 2,
    "emitted": 3,
    "ties": 0,
    "partly_late": 1,
}


def progress(name: str | None, observed: str = "penstock-1234", **latest: int | None) -> SimpleNamespace:
    row = Row(**COUNTS, **{"state_bytes": 100, "watermark": None, **latest})
    made = SimpleNamespace(name=name, id="an id", batchDuration=250, observedMetrics={observed: row})
    return SimpleNamespace(progress=made)


def test_batches_add_up_and_the_latest_state_counts() -> None:
    metrics = pk.StreamingMetrics()
    metrics.onQueryProgress(progress("views"))
    metrics.onQueryProgress(progress("views", state_bytes=50, watermark=7))
    metrics.onQueryProgress(progress("views", observed="somebody else's"))
    found = metrics.totals("views")
    assert (found["read"], found["late"], found["batches"], found["milliseconds"]) == (20, 2, 2, 500)
    assert (found["state_bytes"], found["watermark"]) == (50, 7)


def test_the_text_names_queries_without_letting_them_write_lines_of_their_own() -> None:
    metrics = pk.StreamingMetrics()
    metrics.onQueryProgress(progress('a "b"\nread 1'))
    metrics.onQueryProgress(progress(None))
    lines = metrics.prometheus().splitlines()
    assert "# TYPE penstock_read_total counter" in lines
    assert 'penstock_read_total{query="a \\"b\\"\\nread 1"} 10' in lines
    assert 'penstock_state_bytes{query="an id"} 100' in lines
    assert 'penstock_batch_milliseconds{query="an id"} 250' in lines
    assert all(line.startswith(("# TYPE penstock_", "penstock_")) for line in lines)


def test_durations_of_batches_are_a_histogram() -> None:
    metrics = pk.StreamingMetrics()
    for milliseconds in (90, 250, 251, 90_000):
        metrics.add("views", {**COUNTS, "state_bytes": 1, "watermark": None}, milliseconds)
    lines = metrics.prometheus().splitlines()
    assert "# TYPE penstock_batch_seconds histogram" in lines
    buckets = {line.split('le="')[1].split('"')[0]: line.split()[-1] for line in lines if "_bucket" in line}
    assert [buckets[bound] for bound in ("0.1", "0.25", "0.5", "60", "+Inf")] == ["1", "2", "3", "3", "4"]
    assert 'penstock_batch_seconds_count{query="views"} 4' in lines
    assert 'penstock_batch_seconds_sum{query="views"} 90.591' in lines
