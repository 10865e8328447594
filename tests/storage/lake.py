"""A bucket of the S3 server of the tests: files are put into it by another library than the one under test."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq

from tests.storage.proxy import Proxy

BUCKET = "lake"
KEY, SECRET = "AKIAEXAMPLEKEY", "hunter2/swordfish+secret"


@dataclass(frozen=True)
class Lake:
    """A bucket, and the options that reach it."""

    proxy: Proxy
    bucket: str
    client: Any = field(repr=False)

    @staticmethod
    def of(proxy: Proxy) -> Lake:
        client = boto3.client(
            "s3",
            endpoint_url=proxy.address,
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            region_name="us-east-1",
        )
        client.create_bucket(Bucket=BUCKET)
        return Lake(proxy, BUCKET, client)

    @property
    def options(self) -> dict[str, str]:
        return {
            "access_key_id": KEY,
            "secret_access_key": SECRET,
            "endpoint": self.proxy.address,
            "region": "us-east-1",
        }

    def clear(self) -> None:
        for key in self.keys():
            self.client.delete_object(Bucket=self.bucket, Key=key)

    def keys(self, prefix: str = "") -> list[str]:
        found = self.client.list_objects_v2(Bucket=self.bucket, Prefix=prefix)
        return [row["Key"] for row in found.get("Contents", ())]

    def put(self, key: str, data: bytes) -> str:
        self.client.put_object(Bucket=self.bucket, Key=key, Body=data)
        return self.uri(key)

    def get(self, key: str) -> bytes:
        found: bytes = self.client.get_object(Bucket=self.bucket, Key=key)["Body"].read()
        return found

    def table(self, key: str) -> pa.Table:
        return pq.read_table(io.BytesIO(self.get(key)))

    def put_table(self, key: str, table: pa.Table, **options: Any) -> str:
        return self.put(key, encoded(key, table, **options))

    def uri(self, key: str = "", scheme: str = "s3") -> str:
        return f"{scheme}://{self.bucket}/{key}"


def hadoop_settings(lake: Lake) -> dict[str, str]:
    """Return the settings of Spark that reach a bucket."""
    settings = {
        "access.key": KEY,
        "secret.key": SECRET,
        "endpoint": lake.proxy.address.removeprefix("http://"),
        "connection.ssl.enabled": "false",
        "path.style.access": "true",
        "endpoint.region": "us-east-1",
    }
    return {f"spark.hadoop.fs.s3a.{name}": value for name, value in settings.items()}


def encoded(name: str, table: pa.Table, **options: Any) -> bytes:
    """Write a table in the format of its name."""
    sink = io.BytesIO()
    match name.rpartition(".")[2]:
        case "parquet":
            pq.write_table(table, sink, **options)
        case "arrow":
            pa.feather.write_feather(table, sink, compression="uncompressed")
        case "csv":
            return "\n".join(
                [
                    ",".join(table.column_names),
                    *(",".join(map(str, row.values())) for row in table.to_pylist()),
                    "",
                ]
            ).encode()
        case "json":
            import json

            return "".join(json.dumps(row) + "\n" for row in table.to_pylist()).encode()
    return sink.getvalue()
