"""Read the state of a streaming query from its checkpoint, by Spark's data source of state stores."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.errors import StateError
from penstock.runtime.session import METRICS
from penstock.spark.streaming.operator import WHERE
from penstock.spark.streaming.shard import SPLITS
from penstock.state.state import State
from penstock.state.state_table import read_scalars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OPERATOR = "applyInPandasWithState"


@dataclass(frozen=True, slots=True)
class ShardState:
    """The state of one shard: its size in the checkpoint, and its tables by name."""

    label: int
    partition: int
    size: int
    query: Mapping[str, str]
    tables: Mapping[str, pa.Table]

    @staticmethod
    def of(label: int, partition: int, data: bytes) -> ShardState:
        """Decode a state. Its checksums are verified."""
        state = State.from_bytes(data, WHERE)
        return ShardState(label, partition, len(data), state.query, state.tables(state.query))

    @property
    def counts(self) -> dict[str, int]:
        """Return the row counts since the query began, by name."""
        return read_scalars(self.tables[METRICS])

    @property
    def splits(self) -> dict[tuple[str, str], int]:
        """Return the latest time of each split, by stream and split. The watermark is the least, less the stream's lateness."""
        found = read_scalars(self.tables[SPLITS]) if SPLITS in self.tables else {}
        return {(str(stream), str(split)): time for (stream, split), time in _parsed(found)}

    @property
    def contents(self) -> dict[str, pa.Table]:
        """Return the tables of operators, without counts and splits."""
        return {name: table for name, table in sorted(self.tables.items()) if name not in (METRICS, SPLITS)}


def _parsed(found: Mapping[str, int]) -> list[tuple[list[str], int]]:
    return [(json.loads(name), time) for name, time in found.items()]


def shard_states(spark: SparkSession, checkpoint: str, batch: int | None = None) -> list[ShardState]:
    """Return the states of all shards after a batch, by default after the last one that was committed."""
    first, last = _batches(spark, checkpoint)
    if batch is not None and not first <= batch <= last:
        raise StateError(f"the checkpoint keeps the state after batches {first} to {last}, not after {batch}")
    reader = spark.read.format("statestore")
    rows = (reader if batch is None else reader.option("batchId", batch)).load(checkpoint).collect()
    try:
        found = [(row.key.shard, row.partition_id, bytes(row.value.groupState.state)) for row in rows]
    except AttributeError:
        raise StateError(f"the state in {checkpoint!r} is not that of a query of Penstock") from None
    return [ShardState.of(*entry) for entry in sorted(found)]


def _batches(spark: SparkSession, checkpoint: str) -> tuple[int, int]:
    """Return the first and the last batch whose state is kept."""
    try:
        operators = spark.read.format("state-metadata").load(checkpoint).collect()
    except Exception as error:  # Spark's types differ between versions and sessions
        raise StateError(
            f"{checkpoint!r} is not the checkpoint of a streaming query, or none of its batches is committed; name its checkpointLocation"
        ) from error
    ours = [row for row in operators if row.operatorName == _OPERATOR]
    if not ours:
        raise StateError(f"the query of the checkpoint {checkpoint!r} has no state")
    return int(ours[0].minBatchId), int(ours[0].maxBatchId)
