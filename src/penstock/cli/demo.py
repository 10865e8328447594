"""Demonstrate Penstock: a click stream, a windowed query run batch by batch, and its throughput."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

import penstock as pk
from penstock.cli.clicks import clicks
from penstock.cli.output import print_table

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
