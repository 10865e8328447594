"""Scans of a bucket with a set latency and a set rate per connection, against the time that these alone take.

    bound = latency * (1 + files / connections + requests / connections) + bytes / (connections * rate)

with one list, a footer for each file, and the requests and bytes that the server has counted.

The server is a process of its own that serves the reads of S3's protocol from a folder. Run `python -m benchmarks.scale.s3_scan`.
"""

from __future__ import annotations

import asyncio
import json
import math
import multiprocessing
import os
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from math import ceil
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import penstock as pk
from penstock.sources.parquet_decode import CONNECTIONS, FETCHED_RUN

LATENCY = 0.030
TARGET = 1.25
_PIECE = 1 << 16
_SERVED = "/served"  # answers with the requests since it was last asked


@dataclass(frozen=True, slots=True)
class Network:
    """Seconds before each answer, and bytes a second on each connection."""

    latency: float = LATENCY
    rate: float = 4e6


@dataclass(frozen=True, slots=True)
class Shape:
    """Files of a bucket, and the columns that a query reads."""

    name: str
    files: int
    groups: int
    rows: int
    columns: int = 4
    read: int = 4


SHAPES = (
    Shape("one file, row groups of 1 MB", 1, 64, 1 << 15),
    Shape("one file, row groups of 8 MB", 1, 12, 1 << 18),
    Shape("one file, 3 of 12 columns", 1, 48, 1 << 16, 12, 3),
    Shape("200 files of 250 KB", 200, 1, 1 << 13),
)


class Server:
    """S3's GET of ranges and of lists, for the files of a folder."""

    def __init__(self, folder: Path, network: Network) -> None:
        self._folder, self._network = folder, network
        self._served: list[tuple[float, float, int]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of a connection, one after the other."""
        try:
            while request := await reader.readline():
                headers = {}
                while line := (await reader.readline()).strip():
                    name, _, value = line.decode().partition(":")
                    headers[name.strip().lower()] = value.strip()
                target, began = request.decode().split()[1], time.monotonic()
                if target == _SERVED:
                    await self._send(writer, "200 OK", json.dumps(self._served).encode(), {}, math.inf)
                    self._served.clear()
                    continue
                await asyncio.sleep(self._network.latency)
                size = await self._answer(writer, target, headers)
                self._served.append((began, time.monotonic(), size))
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, target: str, headers: dict[str, str]) -> int:
        url = urlsplit(target)
        key = unquote(url.path).partition("/lake")[2].strip("/")
        if "list-type=2" in url.query:
            found = self._list(parse_qs(url.query).get("prefix", [""])[0])
            await self._send(writer, "200 OK", found, {}, math.inf)
            return 0
        with (self._folder / key).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            begin, end = _range(headers.get("range", "bytes=0-"), size)
            data = os.pread(file.fileno(), end - begin, begin)
        part = {"Content-Range": f"bytes {begin}-{end - 1}/{size}", "ETag": '"0"'}
        part["Last-Modified"] = formatdate(0, usegmt=True)
        await self._send(writer, "206 Partial Content", memoryview(data), part, self._network.rate)
        return len(data)

    async def _send(
        self,
        writer: asyncio.StreamWriter,
        status: str,
        body: bytes | memoryview,
        headers: dict[str, str],
        rate: float,
    ) -> None:
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        began = time.monotonic()
        for start in range(0, len(body), _PIECE):
            writer.write(body[start : start + _PIECE])
            await writer.drain()
            due = began + min(start + _PIECE, len(body)) / rate
            await asyncio.sleep(max(due - time.monotonic(), 0))

    def _list(self, prefix: str) -> bytes:
        found = sorted(path for path in self._folder.rglob("*") if path.is_file())
        named = [(str(path.relative_to(self._folder)), path.stat().st_size) for path in found]
        rows = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{size}</Size>"
            '<LastModified>1970-01-01T00:00:00.000Z</LastModified><ETag>"0"</ETag></Contents>'
            for key, size in named
            if key.startswith(prefix)
        )
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{rows}</ListBucketResult>".encode()


def _range(text: str, size: int) -> tuple[int, int]:
    """Return the first byte and the end of a range.

    >>> _range("bytes=-8", 100), _range("bytes=10-19", 100), _range("bytes=0-", 100)
    ((92, 100), (10, 20), (0, 100))
    """
    first, _, last = text.removeprefix("bytes=").partition("-")
    if not first:
        return max(size - int(last), 0), size
    return int(first), min(int(last) + 1, size) if last else size


def _run(folder: str, network: Network, ready: Any) -> None:
    async def main() -> None:
        server = await asyncio.start_server(Server(Path(folder), network).serve, "127.0.0.1", 0)
        ready.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())


@contextmanager
def serving(folder: Path, network: Network) -> Iterator[dict[str, str]]:
    """Serve a folder as the bucket `lake`, and yield the options that reach it."""
    spawned = multiprocessing.get_context("spawn")
    here, there = spawned.Pipe()
    server = spawned.Process(target=_run, args=(str(folder), network, there), daemon=True)
    server.start()
    try:
        yield {"endpoint": f"http://127.0.0.1:{here.recv()}", "skip_signature": "true", "region": "none"}
    finally:
        server.terminate()
        server.join()


def write(folder: Path, shape: Shape) -> None:
    """Write the files of a shape: whole numbers that do not compress."""
    random = np.random.default_rng(1)
    for number in range(shape.files):
        rows = shape.groups * shape.rows
        values = {f"c{at}": random.integers(0, 1 << 60, rows) for at in range(shape.columns - 1)}
        table = pa.table({"t": np.arange(number * rows, (number + 1) * rows), **values})
        options: dict[str, Any] = {
            "compression": "none",
            "use_dictionary": False,
            "row_group_size": shape.rows,
        }
        pq.write_table(table, folder / f"{number:05}.parquet", **options)


def scan(shape: Shape, options: dict[str, str], path: str) -> float:
    """Return how long a query over a shape takes, from its plan on."""
    stream = pk.scan(path, time="t", storage_options=options)
    columns = {f"c{at}": pk.max(f"c{at}") for at in range(shape.read - 1)}
    query = stream.window(1 << 50).agg(**columns)
    query.compiled()
    began = time.perf_counter()
    query.collect()
    return time.perf_counter() - began


def served(options: dict[str, str]) -> list[tuple[float, float, int]]:
    """Return when each request since the last call began and ended, and the bytes of its answer."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(options["endpoint"] + _SERVED) as answer:
        found: list[tuple[float, float, int]] = json.load(answer)
        return found


def bound(shape: Shape, network: Network, requests: int, read: int) -> float:
    """Return the time that latency and rates alone take: a list, the footers, then ranges on all connections."""
    fetches = shape.files * ceil(shape.groups / max(FETCHED_RUN // shape.rows, 1))
    ranges = ceil(requests / fetches)  # of a fetch, requested at one time
    lanes = min(CONNECTIONS * ranges, requests)
    footers = 1 + ceil(shape.files / CONNECTIONS)
    return network.latency * (footers + requests / lanes) + read / (lanes * network.rate)


def main() -> int:
    """Print a table of shapes, and return 1 if one of them misses the target."""
    missed = False
    network = Network()
    for shape in SHAPES:
        with tempfile.TemporaryDirectory(prefix="penstock-s3-") as folder:
            write(Path(folder), shape)
            took, requests, read = math.inf, 0, 0
            with serving(Path(folder), network) as options:
                for _ in range(3):
                    served(options)
                    took = min(scan(shape, options, "s3://lake/*.parquet"), took)
                    answers = served(options)
                    requests, read = len(answers) - shape.files - 2, sum(size for _, _, size in answers)
        least = bound(shape, network, requests, read)
        missed |= took > TARGET * least
        per = requests / (shape.files * shape.groups)
        line = f"{shape.name:30} {read / 1e6:6.1f} MB  {per:4.2f} requests a group  bound {least:5.2f} s"
        sys.stdout.write(f"{line}  scan {took:5.2f} s  {took / least:5.2f} x\n")
        sys.stdout.flush()
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
