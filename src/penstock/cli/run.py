"""Run or explain a user's query."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console

import penstock as pk
from penstock.cli.guard import CommandError
from penstock.cli.load import load_query
from penstock.cli.output import check_suffix, print_table, write_table
from penstock.spark.streaming.inspect_state import ShardState, shard_states


def run_query(
    target: str, flags: Sequence[str], output: Path | None, limit: int, threads: int | None
) -> None:
    """Collect a query and print its first rows, or write all of them to a file."""
    console = Console()
    if output is not None:
        check_suffix(output)  # fail before a long run
    result = collect(load_query(target, flags), threads)
    if output is None:
        print_table(console, result, limit)
    else:
        write_table(result, output)
        console.print(f"{result.num_rows:,} rows written to {output}", highlight=False, markup=False)


def collect(query: Any, threads: int | None) -> pa.Table:
    """Run a query with the requested number of threads."""
    return query.collect() if threads is None else query.collect(engine=pk.Engine(threads=threads))


def explain_query(target: str, flags: Sequence[str], stage: str | None) -> None:
    """Print a query's explanation, or one stage of it, as plain text."""
    query = load_query(target, flags)
    text = query.explain() if stage is None else query.explain(stage=str(stage))
    Console().print(str(text), markup=False, highlight=False, soft_wrap=True)


# --- Print the state of a streaming query from its checkpoint.

_COUNTS = ("read", "accepted", "late", "malformed", "filtered", "emitted")


def list_shards(checkpoint: str, batch: int | None) -> None:
    """Print one row for each shard."""
    print_table(Console(), listed(_read(checkpoint, batch)), 1_000)


def show_tables(checkpoint: str, batch: int | None, table: str | None, shard: int | None, limit: int) -> None:
    """Print the tables of each shard."""
    console, found = Console(), _read(checkpoint, batch)
    chosen = [shard_state for shard_state in found if shard in (None, shard_state.label)]
    if not chosen:
        raise CommandError(
            f"there is no shard {shard}; there are {', '.join(str(shard_state.label) for shard_state in found)}"
        )
    names = sorted({name for shard_state in chosen for name in shard_state.contents})
    if table is not None and table not in names:
        raise CommandError(f"there is no table {table!r}; there are {', '.join(names)}")
    for shard_state in chosen:
        for name, rows in shard_state.contents.items():
            if table in (None, name):
                console.print(f"shard {shard_state.label}, {name}", style="bold", markup=False)
                print_table(console, rows, limit)


def listed(found: list[ShardState]) -> pa.Table:
    """Describe shards as a table: size, rows, counts and latest times."""
    columns: dict[str, list[object]] = {
        "shard": [shard_state.label for shard_state in found],
        "partition": [shard_state.partition for shard_state in found],
        "bytes": [shard_state.size for shard_state in found],
        "rows": [_rows(shard_state) for shard_state in found],
        **{name: [shard_state.counts.get(name, 0) for shard_state in found] for name in _COUNTS},
        "latest": [_latest(shard_state) for shard_state in found],
    }
    return pa.table(columns)


def _rows(shard: ShardState) -> str:
    return ", ".join(f"{name}: {table.num_rows}" for name, table in shard.contents.items() if table.num_rows)


def _latest(shard: ShardState) -> str:
    """Write the latest ticks of each split, whose unit is the stream's."""
    return ", ".join(
        f"{stream}{'/' if split else ''}{split}: {time}" for (stream, split), time in shard.splits.items()
    )


def _read(checkpoint: str, batch: int | None) -> list[ShardState]:
    spark = pk.spark_session("local[1]", name="penstock state")
    try:
        return shard_states(spark, checkpoint, batch)
    finally:
        spark.stop()
