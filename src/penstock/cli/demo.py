"""Demonstrate Penstock: a click stream, a windowed query run batch by batch, and its throughput."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

import penstock as pk
from penstock.cli.guard import CommandError
from penstock.cli.output import print_table
from penstock.spark.baseline import windowed

# --- Generate the demo's click stream.

START_US = 1_700_000_000_000_000
KINDS = pa.array(["click", "view", "purchase"])
PAGES = pa.array(["/", "/search", "/product", "/basket", "/pay", "/help", "/about", "/news"])


def clicks(rows: int, seed: int = 1) -> pa.Table:
    """Build the demo's click stream: a small site, one event every 250 microseconds."""
    random = np.random.default_rng(seed)
    visits = np.minimum(random.geometric(0.35, rows) - 1, len(PAGES) - 1)
    kinds = random.choice(3, rows, p=(0.25, 0.7, 0.05))
    cents = np.where(kinds == 2, random.integers(500, 20_000, rows), 0)
    return pa.table(
        {
            "ts": pa.array(START_US + 250 * np.arange(rows, dtype=np.int64)).cast(pa.timestamp("us")),
            "user": pa.array(random.integers(0, 50_000, rows, dtype=np.int64)),
            "page": PAGES.take(pa.array(visits)),
            "kind": KINDS.take(pa.array(kinds)),
            "cents": pa.array(cents),
        }
    )


BATCH_ROWS = 1 << 17
SHOWN_ROWS = 16


def demo_query(schema: pa.Schema) -> Any:
    """Count events, purchases and takings per page and minute."""
    events = pk.stream("clicks", {field.name: str(field.type) for field in schema}, time="ts")
    return events.window(pk.tumbling("1m"), by="page").agg(
        events=pk.count(),
        purchases=pk.count(where=pk.col("kind") == "purchase"),
        takings=pk.sum("cents") / 100,
    )


def run_demo(rows: int, threads: int | None, seed: int) -> None:
    """Generate data, run the query, and print the result."""
    console = Console()
    with console.status(f"generating {rows:,} clicks"):
        table = clicks(rows, seed)
    query = demo_query(table.schema)
    console.print(Panel(Text(str(query.explain())), title="the query", title_align="left"))
    result, seconds = run_with_progress(console, query, table, threads)
    print_table(console, result.drop_columns("window_end"), SHOWN_ROWS)  # fits 80 columns without it
    console.print(
        f"[bold]{rows:,}[/] rows in {seconds:.3f} s, the compiler included: "
        f"[bold green]{rows / seconds / 1e6:,.1f} M rows/s[/]"
    )


def run_with_progress(
    console: Console, query: Any, table: pa.Table, threads: int | None
) -> tuple[pa.Table, float]:
    """Push the table through the query batch by batch. The measured time includes drawing."""
    engine = {} if threads is None else {"engine": pk.Engine(threads=threads)}
    columns = (
        TextColumn("running"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("rows"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("running", total=table.num_rows)

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in table.to_batches(max_chunksize=BATCH_ROWS):
                yield batch
                progress.advance(task, batch.num_rows)

        begin = time.perf_counter()
        pieces = list(query.run(batches(), **engine))
        seconds = time.perf_counter() - begin
    return pa.Table.from_batches(pieces, schema=query.schema), seconds


# --- Demonstrate Penstock on Spark: a lake of clicks and a sliding window over it, compared with plain Spark.

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
