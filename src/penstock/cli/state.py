"""Print the state of a streaming query from its checkpoint."""

from __future__ import annotations

import pyarrow as pa
from rich.console import Console

import penstock as pk
from penstock.cli.guard import CommandError
from penstock.cli.output import print_table
from penstock.spark.streaming.inspect_state import ShardState, shard_states

_COUNTS = ("read", "accepted", "late", "malformed", "filtered", "emitted")


def list_shards(checkpoint: str, batch: int | None) -> None:
    """Print one row for each shard."""
    print_table(Console(), listed(_read(checkpoint, batch)), 1_000)


def show_tables(checkpoint: str, batch: int | None, table: str | None, shard: int | None, limit: int) -> None:
    """Print the tables of each shard."""
    console, found = Console(), _read(checkpoint, batch)
    chosen = [each for each in found if shard in (None, each.label)]
    if not chosen:
        raise CommandError(
            f"there is no shard {shard}; there are {', '.join(str(each.label) for each in found)}"
        )
    names = sorted({name for each in chosen for name in each.contents})
    if table is not None and table not in names:
        raise CommandError(f"there is no table {table!r}; there are {', '.join(names)}")
    for each in chosen:
        for name, rows in each.contents.items():
            if table in (None, name):
                console.print(f"shard {each.label}, {name}", style="bold", markup=False)
                print_table(console, rows, limit)


def listed(found: list[ShardState]) -> pa.Table:
    """Describe shards as a table: size, rows, counts and latest times."""
    columns: dict[str, list[object]] = {
        "shard": [each.label for each in found],
        "partition": [each.partition for each in found],
        "bytes": [each.size for each in found],
        "rows": [_rows(each) for each in found],
        **{name: [each.counts.get(name, 0) for each in found] for name in _COUNTS},
        "latest": [_latest(each) for each in found],
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
