"""Streams, late and malformed rows, and saved state in a bucket, in this process."""

from __future__ import annotations

import pyarrow as pa
import pytest

import penstock as pk
from tests.storage.lake import Lake
from tests.storage.proxy import Faults

SCHEMA = {"t": "int64", "v": "int64"}


def rows(*times: int) -> pa.Table:
    return pa.table({"t": list(times), "v": list(times)})


def test_files_that_appear_in_a_bucket_are_read_once_in_the_order_in_which_they_were_written(
    s3: Lake,
) -> None:
    s3.put_table("in/b.parquet", rows(1, 2))
    arrived = [("in/a.parquet", rows(12)), ("in/c.parquet", rows(25))]

    def sleep(seconds: float) -> None:
        if arrived:
            s3.put_table(*arrived.pop(0))
        now.append(now[-1] + seconds)

    from penstock.sources.live_files import Clock, live_files
    from penstock.storage.access import Access

    now = [0.0]
    clock = Clock(now=lambda: now[-1], sleep=sleep)
    access = Access.of(s3.options, None)
    data = live_files(s3.uri("in"), None, None, poll=1.0, stop_after=3.0, clock=clock, access=access)
    assert [
        arrival.batch["t"].to_pylist() for arrival in data.arrivals("t", "fail") if arrival.batch.num_rows
    ] == [
        [1, 2],
        [12],
        [25],
    ]


def test_scan_stream_reads_what_is_there_and_needs_a_schema_where_nothing_is(s3: Lake) -> None:
    with pytest.raises(pk.SourceError, match="needs both schema= and format="):
        pk.scan_stream(s3.uri("in"), time="t", storage_options=s3.options)
    s3.put_table("in/a.csv", rows(1, 2, 12))
    stream = pk.scan_stream(
        s3.uri("in/*.csv"), time="t", stop_after="1ms", poll="1ms", storage_options=s3.options
    )
    made = [batch["n"].to_pylist() for batch in stream.window(10).agg(n=pk.count()).run()]
    assert made == [[2], [1]]


def test_late_and_malformed_rows_are_written_to_the_bucket(s3: Lake) -> None:
    s3.put("in/0.csv", b"t,v\n1,1\n30,2\nx,3\n")
    s3.put("in/1.csv", b"t,v\n2,4\n,5\n")
    stream = pk.scan_stream(
        s3.uri("in"),
        time="t",
        schema=SCHEMA,
        format="csv",
        lateness=0,
        on_bad="quarantine",
        late_to=s3.uri("late/"),
        name="in",
        stop_after="0s",
        storage_options=s3.options,
    )
    run = stream.window(10).agg(n=pk.count()).run()
    assert sum(sum(batch["n"].to_pylist()) for batch in run) == 2
    assert (run.metrics.late, run.metrics.malformed) == (1, 2)
    assert s3.keys("late/") == ["late/in-000000.parquet"]
    assert s3.table("late/in-000000.parquet").to_pylist() == [{"t": 2, "v": 4}]
    bad = [s3.table(key).to_pylist() for key in s3.keys("in/_quarantine/")]
    assert len([row for some in bad for row in some]) == 2
    assert stream.window(10).agg(n=pk.count()).collect()["n"].to_pylist() == [
        2,
        1,
    ]  # no quarantined file is data


def test_two_writers_of_one_folder_replace_no_file_of_each_other(s3: Lake) -> None:
    from penstock.sources.side_output import put_next
    from penstock.storage.access import Access

    access = Access.of(s3.options, None)
    s3.put_table("late/in-000001.parquet", rows(7))  # taken, though only one file is there
    put_next(s3.uri("late"), "in", rows(8), access)
    assert s3.keys("late/") == ["late/in-000001.parquet", "late/in-000002.parquet"]
    assert s3.table("late/in-000001.parquet") == rows(7)


def totals() -> pk.Stream:
    return pk.stream("events", SCHEMA, time="t").window(10).agg(total=pk.sum("v"))


def test_state_is_saved_to_a_bucket_and_loaded_from_it(s3: Lake) -> None:
    with totals().open() as live:
        live.push(rows(1, 2).to_batches()[0])
        live.save(s3.uri("state/totals"), storage_options=s3.options)
    state = pk.State.load(s3.uri("state/totals"), storage_options=s3.options)
    with totals().open(state=state) as live:
        assert live.push(rows(3, 12).to_batches()[0])[0]["total"].to_pylist() == [6]
    with pytest.raises(pk.StateError, match="no such file"):
        pk.State.load(s3.uri("state/none"), storage_options=s3.options)


def test_the_environment_gives_keys_where_no_options_do(s3: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    s3.put_table("a.parquet", rows(1, 2))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "another")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.proxy.address)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    assert pk.scan(s3.uri("a.parquet"), time="t").filter(pk.col("v") > 1).collect().num_rows == 1
    with totals().open() as live:
        live.push(rows(1, 2).to_batches()[0])
        live.save(s3.uri("state"))
    with totals().open(state=s3.uri("state")) as live:
        assert live.finish()[0]["total"].to_pylist() == [3]


def test_a_write_that_fails_says_where_and_is_not_lost_in_silence(s3: Lake) -> None:
    options = {**s3.options, "max_retries": "0"}
    s3.proxy.faults = Faults(status=lambda request, number: 403 if request.method == "PUT" else None)
    with (
        totals().open() as live,
        pytest.raises(pk.StateError, match=r"'s3://lake/state': the store denies access"),
    ):
        live.save(s3.uri("state"), storage_options=options)
    from penstock.sources.side_output import put
    from penstock.storage.access import Access

    with pytest.raises(pk.SourceError, match=r"nothing can be written to the folder 's3://lake/late'"):
        put(s3.uri("late"), "x", rows(1), Access.of(options, None))
