"""Flink SQL on a mini cluster: the same texts, over events replayed from memory, whose rate is measured as well."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from pyarrow import csv

from benchmarks.live.peers import PeerError
from benchmarks.live.peers.flink import HEAP, LOGGING, OPENED, ROUNDS, TIMEOUT, jars
from benchmarks.live.points import Found
from benchmarks.nexmark.generator import Events
from benchmarks.nexmark.queries import TIMES, Query

DRIVER = Path(__file__).with_name("NexmarkQueries.java")


@contextmanager
def open_flink() -> Iterator[Flink | None]:
    """Compile the driver; give nothing where jars, Java or its compiler are missing."""
    lib, java, javac = jars(), shutil.which("java"), shutil.which("javac")
    if lib is None or java is None or javac is None:
        yield None
        return
    with TemporaryDirectory(prefix="penstock-nexmark-") as name:
        folder = Path(name)
        (folder / "log4j2.properties").write_text(LOGGING, encoding="ascii")
        command = [javac, "-nowarn", "-d", str(folder), "-cp", f"{lib}/*", str(DRIVER)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise PeerError(f"Flink: the driver does not compile: {done.stderr.strip()[:300]}")
        yield Flink(java, lib, folder)


@dataclass
class Flink:
    """Runs a query over the events written last."""

    java: str
    lib: Path
    folder: Path
    written: dict[str, int] = field(default_factory=dict)

    def write(self, events: Events, streams: Sequence[str]) -> None:
        """Write the columns of streams, once for all queries over the same events."""
        for name in streams:
            table = events[name]
            if self.written.get(name) == id(table):
                continue
            for column in table.column_names:
                values, path = table[column], self.folder / f"{name}.{column}"
                if pa.types.is_string(values.type):
                    path.write_text("\n".join(values.to_pylist()), encoding="utf-8")
                else:
                    values.cast("int64").to_numpy().tofile(path)
            self.written[name] = id(table)

    def answer(self, query: Query, events: Events, threads: int) -> pa.Table:
        """Collect all results; Flink's times are milliseconds."""
        self.run(query, events, "answer", threads, rounds=1)
        options = csv.ReadOptions(column_names=list(query.columns))
        table = csv.read_csv(self.folder / "answer.csv", options)
        fields = [
            pa.field(name, pa.timestamp("ms") if name in TIMES else table.schema.field(name).type)
            for name in query.columns
        ]
        return table.cast(pa.schema(fields))

    def speed(self, query: Query, events: Events, threads: int, mini_batch: bool) -> list[Found]:
        """Measure rounds in one JVM, whose compilers need the first ones."""
        return self.run(query, events, "speed", threads, mini_batch)

    def source(self, query: Query, events: Events, threads: int) -> list[Found]:
        """Measure the source alone."""
        return self.run(query, events, "source", threads)

    def run(
        self,
        query: Query,
        events: Events,
        mode: str,
        threads: int,
        mini_batch: bool = False,
        rounds: int = ROUNDS,
    ) -> list[Found]:
        """Run a query in a JVM of its own."""
        self.write(events, query.streams)
        (self.folder / "query.sql").write_text(plain_times(query), encoding="utf-8")
        exports = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in OPENED]
        exports.append("--add-opens=java.base/sun.nio.ch=ALL-UNNAMED")
        logging = f"-Dlog4j.configurationFile={self.folder / 'log4j2.properties'}"
        path = f"{self.folder}{os.pathsep}{self.lib}/*"
        arguments = [",".join(query.streams), mode, str(threads), str(mini_batch).lower(), str(rounds)]
        command = [self.java, *exports, f"-Xmx{HEAP}", logging, "-cp", path, DRIVER.stem, str(self.folder)]
        try:
            done = subprocess.run(
                [*command, *arguments], capture_output=True, text=True, check=False, timeout=TIMEOUT
            )
        except subprocess.TimeoutExpired as error:
            raise PeerError(f"Flink: {query.name} took longer than {TIMEOUT:g} s") from error
        if done.returncode != 0:
            raise PeerError(f"Flink: {query.name}: {' '.join(done.stderr.split())[-300:]}")
        return [Found(**json.loads(line)) for line in done.stdout.splitlines() if line.startswith("{")]


def plain_times(query: Query) -> str:
    """Let times of results be plain timestamps: Flink's DataStreams take no more than one time attribute."""
    listed = ", ".join(
        f"cast({name} as timestamp(3)) as {name}" if name in TIMES else name for name in query.columns
    )
    return f"select {listed} from ({query.sql})"  # noqa: S608 - the texts are those of queries.py
