"""Flink on a mini cluster in a JVM of its own; the jars are those of the package `apache-flink-libraries`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
from pyarrow import csv

from benchmarks.live.feed import Feed, rows_of
from benchmarks.live.peers import PeerError
from benchmarks.live.points import Found
from benchmarks.workloads import START_US

DRIVER = Path(__file__).with_name("LiveQueries.java")
HEAP = "4g"
ROUNDS = 3
"""Rounds in one JVM, whose compilers need the first ones; the best counts."""
OPENED = ("lang", "util", "nio", "lang.reflect", "text", "time", "net")
LOGGING = """rootLogger.level = ERROR
rootLogger.appenderRef.console.ref = console
appender.console.name = console
appender.console.type = CONSOLE
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
"""
TIMEOUT = 900.0
LATENCY_SECONDS = 4.0


def jars() -> Path | None:
    """Find the folder of Flink's jars among the installed packages."""
    folders = (Path(entry) / "pyflink" / "lib" for entry in sys.path)
    return next((folder for folder in folders if folder.is_dir()), None)


@contextmanager
def open_flink() -> Iterator[Flink | None]:
    """Compile the driver; give nothing where jars, Java or its compiler are missing."""
    lib, java, javac = jars(), shutil.which("java"), shutil.which("javac")
    if lib is None or java is None or javac is None:
        yield None
        return
    with TemporaryDirectory(prefix="penstock-flink-") as name:
        folder = Path(name)
        (folder / "log4j2.properties").write_text(LOGGING, encoding="ascii")
        command = [javac, "-nowarn", "-d", str(folder), "-cp", f"{lib}/*", str(DRIVER)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise PeerError(f"Flink: the driver does not compile: {done.stderr.strip()[:300]}")
        yield Flink(java, lib, folder)


@dataclass
class Flink:
    """Flink SQL; count windows by its DataStream API, since SQL has none. Signals cannot be expressed."""

    java: str
    lib: Path
    folder: Path
    name: str = "Flink"
    rows: int = 2_000_000
    queries: tuple[str, ...] = ("tumbling", "sliding", "session", "count", "rolling", "filter")
    _written: Feed | None = field(default=None, init=False)

    def answer(self, query: str, feed: Feed, threads: int) -> pa.Table:
        """Collect all results."""
        self._run(query, feed, "answer", threads)
        return csv.read_csv(self.folder / "answer.csv")

    def throughput(self, query: str, feed: Feed, threads: int) -> Mapping[str, Found]:
        """Measure with and without mini-batches, and the generator alone, whose rate bounds both."""
        return {
            "": self._best(self._run(query, feed, "speed", threads)),
            "mini-batch": self._best(self._run(query, feed, "speed", threads, mini_batch=True)),
        }

    def source(self, feed: Feed, threads: int) -> Found:
        """Measure the generator alone."""
        return self._best(self._run("filter", feed, "source", threads))

    def latency(self, query: str, feed: Feed, threads: int, rate: float) -> Found:
        """Measure in an open loop: rows are generated when they are due. The last round counts."""
        several = replace(feed, rows=min(feed.rows, max(int(rate * LATENCY_SECONDS), 100_000)))
        return self._run(query, several, "latency", threads, rate=rate)[-1]

    def _best(self, rounds: list[Found]) -> Found:
        return min(rounds, key=lambda found: found.seconds)

    def _run(
        self, query: str, feed: Feed, mode: str, threads: int, mini_batch: bool = False, rate: float = 0.0
    ) -> list[Found]:
        self._write(feed)
        rounds = 1 if mode == "answer" else ROUNDS
        exports = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in OPENED]
        exports.append("--add-opens=java.base/sun.nio.ch=ALL-UNNAMED")
        logging = f"-Dlog4j.configurationFile={self.folder / 'log4j2.properties'}"
        path = f"{self.folder}{os.pathsep}{self.lib}/*"
        arguments = [query, mode, str(threads), str(mini_batch).lower(), str(rate), str(rounds)]
        command = [self.java, *exports, f"-Xmx{HEAP}", logging, "-cp", path, "LiveQueries", str(self.folder)]
        try:
            done = subprocess.run(
                [*command, *arguments], capture_output=True, text=True, check=False, timeout=TIMEOUT
            )
        except subprocess.TimeoutExpired as error:
            raise PeerError(f"Flink: {query} took longer than {TIMEOUT:g} s") from error
        if done.returncode != 0:
            raise PeerError(f"Flink: {query}: {' '.join(done.stderr.split())[-300:]}")
        return [Found(**json.loads(line)) for line in done.stdout.splitlines() if line.startswith("{")]

    def _write(self, feed: Feed) -> None:
        """Write the columns, once for all runs over the same feed."""
        if self._written == feed:
            return
        table = rows_of(feed)
        times = table["ts"].combine_chunks().view(pa.int64()).to_numpy() - START_US
        columns = {"ts": times, **{name: table[name].to_numpy() for name in ("key", "et", "val")}}
        for name, values in columns.items():
            width = np.dtype("<i4") if name == "et" else np.dtype("<i8")
            values.astype(width).tofile(self.folder / name)
        self._written = feed
