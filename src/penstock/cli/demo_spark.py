"""Demonstrate Penstock on Spark: a lake of clicks and a sliding window over it, compared with plain Spark."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

import penstock as pk
from penstock.cli.clicks import clicks
from penstock.cli.guard import CommandError
from penstock.cli.output import print_table
from penstock.spark.baseline import windowed

FILES = 8
DEMO_GROUP_ROWS = 250_000
SHOWN_SPARK_ROWS = 8
SIZE, EVERY = "1m", "5s"
SPARK_SIZE, SPARK_EVERY = "1 minute", "5 seconds"
SQL = {
    "events": "count(*)",
    "purchases": "count_if(kind = 'purchase')",
    "takings": "sum(cents) / 100",
}


def lake_query(path: str) -> Any:
    """Count events, purchases and takings per page over the last minute, every five seconds."""
    events = pk.scan(path, time="ts", name="clicks")
    return events.window(SIZE, every=EVERY, by="page").agg(
        events=pk.count(),
        purchases=pk.count(where=pk.col("kind") == "purchase"),
        takings=pk.sum("cents") / 100,
    )


def write_lake(folder: Path, rows: int, seed: int) -> str:
    """Write clicks as a few Parquet files, in time order."""
    table = clicks(rows, seed)
    for number in range(FILES):
        begin, end = (rows * part // FILES for part in (number, number + 1))
        path = folder / f"clicks-{number:02}.parquet"
        pq.write_table(table.slice(begin, end - begin), path, row_group_size=DEMO_GROUP_ROWS)
    return str(folder)


def run_spark_demo(rows: int, seed: int) -> None:
    """Generate data, run both versions on Spark, compare them, and print the result."""
    console = Console()
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as folder:
        with console.status(f"writing a lake of {rows:,} clicks"):
            path = write_lake(Path(folder), rows, seed)
        query = lake_query(path)
        console.print(Panel(Text(str(query.explain("plan"))), title="the query", title_align="left"))
        with console.status("starting Spark (some seconds)"):
            spark = started()
        try:
            show_both(console, spark, query, path, rows)
        finally:
            spark.stop()


def started() -> Any:
    """Start a session. A failure is reported in one line."""
    try:
        return pk.spark_session(name="penstock demo")
    except pk.PenstockError:
        raise
    except Exception as error:  # Java fails in many ways
        raise CommandError(
            f"Spark does not start ({type(error).__name__}): it needs Java 17 or newer; "
            "try scripts/ensure_java.sh, or `penstock demo --no-spark`"
        ) from error


def show_both(console: Console, spark: Any, query: Any, path: str, rows: int) -> None:
    """Run the query with Penstock and with plain Spark, each once to warm up and once timed."""
    console.print(Panel(Text(str(query.explain("spark"))), title="on Spark", title_align="left"))
    ours, seconds = timed(console, "Penstock on Spark", lambda: query.to_spark(spark).toArrow())
    theirs, spark_seconds = timed(console, "Spark's own window", lambda: spark_way(spark, path).toArrow())
    print_table(console, ours.drop_columns("window_end"), SHOWN_SPARK_ROWS)
    same = "the same rows" if ordered(ours).equals(ordered(theirs)) else "OTHER ROWS: please report this"
    console.print(f"both give {same}")
    console.print(
        f"Penstock on Spark: {rows:,} rows in {seconds:.2f} s, "
        f"[bold green]{rows / seconds / 1e6:,.1f} M rows/s[/]\n"
        f"Spark's own way:   {rows:,} rows in {spark_seconds:.2f} s, {rows / spark_seconds / 1e6:,.1f} M rows/s\n"
        f"[bold]{spark_seconds / seconds:,.1f} times as fast[/], both warm, on the same files"
    )


def spark_way(spark: Any, path: str) -> Any:
    """Return the query with Spark's own window function."""
    return windowed(spark.read.parquet(path), "ts", SPARK_SIZE, SPARK_EVERY, "page", SQL)


def timed(console: Console, what: str, run: Callable[[], pa.Table]) -> tuple[pa.Table, float]:
    """Run twice and time the second run: the first starts Python workers and compiles."""
    with console.status(f"{what}: warming up"):
        begin = time.perf_counter()
        run()
        first = time.perf_counter() - begin
    with console.status(f"{what}: running"):
        begin = time.perf_counter()
        table = run()
        seconds = time.perf_counter() - begin
    console.print(f"{what}: {first:.1f} s the first time, {seconds:.2f} s the second", style="dim")
    return table, seconds


def ordered(table: pa.Table) -> pa.Table:
    """Sort results and convert them to plain types: Spark's order is arbitrary, and its types differ in names."""
    plain = pa.table(
        {
            "window_start": table["window_start"].cast(pa.timestamp("us")),
            "page": table["page"].cast(pa.string()),
            "events": table["events"].cast(pa.int64()),
            "purchases": table["purchases"].cast(pa.int64()),
            "takings": table["takings"].cast(pa.float64()),
        }
    )
    return plain.sort_by([("window_start", "ascending"), ("page", "ascending")]).combine_chunks()
