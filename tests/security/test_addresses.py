"""Users, passwords and tokens in addresses are in no error, plan or explanation."""

from __future__ import annotations

import traceback
from collections.abc import Callable

import pytest

import penstock as pk
from penstock.errors import redacted

SECRETS = ("s3cr3t", "t0k3n")
ADDRESSES = [
    "s3://user:s3cr3t@bucket/a.parquet",
    "s3://user:s3cr3t/with/slashes@bucket/a.parquet",
    "https://host/a.csv?sig=t0k3n&x=1",
    "abfss://user:s3cr3t@host/path/*.json?token=t0k3n",
    "file:/user:s3cr3t@host/a.arrow",
]
SCHEMA = {"t": "int64"}
CALLS: dict[str, Callable[[str], object]] = {
    "scan": lambda path: pk.scan(path, time="t"),
    "scan of several": lambda path: pk.scan([path, path], time="t"),
    "scan with a format": lambda path: pk.scan(path, time="t", format="parquet"),
    "delta": lambda path: pk.scan(path, time="t", format="delta").collect(),
    "iceberg": lambda path: pk.scan(path, time="t", format="iceberg").collect(),
    "scan_stream": lambda path: pk.scan_stream(path, time="t"),
    "too long": lambda path: pk.scan(path.replace("user", "u" * 400), time="t"),
    "with a zero": lambda path: pk.scan(path + "\0", time="t"),
    "no format": lambda path: pk.scan_stream(path, time="t", schema=SCHEMA, format=path),
    "state": lambda path: pk.stream("s", SCHEMA, time="t").window(1).agg(n=pk.count()).open(state=path),
    "servers": lambda path: pk.scan_kafka(path, "", SCHEMA, time="t"),
    "topic": lambda path: pk.scan_kafka("localhost:1", path, SCHEMA, time="t", format=path),
}


@pytest.mark.parametrize("path", ADDRESSES)
@pytest.mark.parametrize("name", CALLS)
def test_no_error_shows_a_secret_of_an_address(name: str, path: str) -> None:
    with pytest.raises(pk.PenstockError) as raised:
        CALLS[name](path)
    reported = "".join(traceback.format_exception(raised.value)) + repr(raised.value)
    assert not any(secret in reported for secret in SECRETS)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("'s3://me:pass@bucket/a'; check", "'s3://***@bucket/a'; check"),
        ("'s3:/me:p/a/s@s@bucket/a'", "'s3:/***@bucket/a'"),
        (
            "https://host/a?token=1&b=2 twice https://host/a?token=1",
            "https://host/a?*** twice https://host/a?***",
        ),
        ("jdbc:postgresql://me:pass@host/db", "jdbc:postgresql://***@host/db"),
        ("'s3://bucket/part-?.parquet'", "'s3://bucket/part-?.parquet'"),
        ("'/data/me@home/a.csv': 3 rows", "'/data/me@home/a.csv': 3 rows"),
        ("localhost:9092", "localhost:9092"),
    ],
)
def test_what_is_secret_is_replaced_and_the_rest_stays(text: str, shown: str) -> None:
    assert redacted(text) == shown
    assert str(pk.SourceError(text)) == shown
    assert str(pk.UnknownColumnError(text)) == shown
