"""A store that throttles, fails, breaks off or changes its files: requests are repeated, and what cannot succeed is told."""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk
from tests.storage.lake import KEY, SECRET, Lake
from tests.storage.proxy import Faults, Request

ROWS = 20_000
TABLE = pa.table({"t": np.arange(ROWS), "v": np.arange(ROWS) * 3})


def every(number: int) -> Callable[[Request, int], bool]:
    return lambda request, count: request.method == "GET" and count % number == 1


FAULTS: dict[str, Faults] = {
    "throttled": Faults(status=lambda request, number: 503 if number % 3 == 1 else None),
    "too many requests": Faults(status=lambda request, number: 429 if number % 3 == 1 else None),
    "failing": Faults(status=lambda request, number: 500 if number % 3 == 1 else None),
    "answers broken off": Faults(cut=every(3)),
    "connections lost": Faults(refuse=every(3)),
    "slow ranges": Faults(latency=0.01, bytes_per_second=20e6),
}


def query(s3: Lake, **options: str) -> pk.Stream:
    events = pk.scan(s3.uri("events"), time="t", storage_options={**s3.options, **options})
    return events.window(1_000).agg(total=pk.sum("v"))


@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS.keys())
@pytest.mark.parametrize("format", ["parquet", "csv"])
def test_a_scan_has_every_row_once_whatever_the_store_does(s3: Lake, faults: Faults, format: str) -> None:
    for number in range(3):
        begin, end = number * ROWS // 3, (number + 1) * ROWS // 3
        s3.put_table(f"events/{number}.{format}", TABLE.slice(begin, end - begin))
    expected = pk.from_arrow(TABLE, time="t").window(1_000).agg(total=pk.sum("v")).collect()
    s3.proxy.heal()
    s3.proxy.faults = faults
    assert query(s3).collect().equals(expected)


def test_a_write_is_repeated_too(s3: Lake) -> None:
    s3.proxy.faults = Faults(status=lambda request, number: 503 if number <= 2 else None)
    state = pk.State({}, {"in0/marks": b"x"})
    state.save(s3.uri("state"), storage_options=s3.options)
    s3.proxy.heal()
    assert s3.get("state") == state.to_bytes()


REFUSED: dict[int, str] = {
    403: "the store denies access: the credentials are missing, wrong or lack a right (status 403",
    503: "the store is throttling (status 503",
    500: "the store refuses the request (status 500",
}


@pytest.mark.parametrize("status", REFUSED)
def test_an_error_names_the_file_and_the_status_and_no_address_or_key(s3: Lake, status: int) -> None:
    s3.put_table("events/a.parquet", TABLE)
    views = query(s3, max_retries="0")
    s3.proxy.faults = Faults(status=lambda request, number: status)
    with pytest.raises(pk.SourceError) as raised:
        views.collect()
    reported = "".join(traceback.format_exception(raised.value))
    start = f"the file 's3://lake/events/a.parquet' cannot be read: {REFUSED[status]}"
    assert str(raised.value) in (f"{start})", f"{start}, SlowDown)")
    assert not [value for value in (KEY, SECRET, s3.proxy.address) if value in reported]


def test_a_store_that_is_not_there_is_told_in_one_line(s3: Lake) -> None:
    options = {**s3.options, "endpoint": "http://127.0.0.1:9", "max_retries": "0"}
    with pytest.raises(pk.SourceError, match="the store cannot be reached") as raised:
        pk.scan(s3.uri("events"), time="t", storage_options=options)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("shorter", [b"", b"PAR1", b"x" * 3_000])
def test_a_file_replaced_between_planning_and_reading_is_an_error(s3: Lake, shorter: bytes) -> None:
    """The footer read when planning does not fit the bytes that are there."""
    uri = s3.put_table("events/a.parquet", TABLE, compression="none")
    plan = pk.scan(uri, time="t", storage_options=s3.options).data
    dataset = next(iter(plan.values())).dataset("t")
    s3.put("events/a.parquet", shorter)
    with pytest.raises(pk.SourceError, match=r"'s3://lake/events/a\.parquet' cannot be read"):
        list(dataset.batches(["v"]))


def _read_in_child(pipe: Any, uri: str, options: dict[str, str]) -> None:
    try:
        pk.scan(uri, time="t", storage_options=options)
        pipe.send("read")
    except pk.EngineError as error:
        pipe.send(str(error))
    os._exit(0)


def test_a_forked_process_is_refused_at_once_instead_of_waiting_for_ever(s3: Lake) -> None:
    uri = s3.put_table("events/a.parquet", TABLE)
    pk.scan(uri, time="t", storage_options=s3.options)
    here, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_read_in_child, args=(there, uri, s3.options))
    child.start()
    assert here.poll(30)
    assert "forked" in here.recv()
    child.join()
