"""The state in a checkpoint, read without its query."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from rich.console import Console

import penstock as pk
from penstock.cli import run as cli
from penstock.spark.streaming.inspect_state import ShardState, shard_states
from tests.spark.streaming.feed import Feed
from tests.spark.streaming.local import LocalStream
from tests.spark.streaming.test_micro_batches import TABLE, cut, declared


def shards(name: str = "tumbling") -> list[ShardState]:
    """The shards of a query after one batch, in this process."""
    running = LocalStream(declared("1s")[name], 2)
    running.batch([TABLE])
    states = {label: running.steps[place].state for place, label in enumerate(running.states)}
    return [
        ShardState.of(label, place, state.to_bytes()) for place, (label, state) in enumerate(states.items())
    ]


def test_a_shard_tells_its_counts_its_splits_and_its_tables() -> None:
    found = shards()
    assert sum(shard_state.counts["read"] for shard_state in found) == TABLE.num_rows
    newest = pc.max(TABLE["ts"]).value
    assert [shard_state.splits for shard_state in found] == 2 * [{("events", ""): newest}]
    assert all(
        "w2/cells" in shard_state.contents and "metrics" not in shard_state.contents for shard_state in found
    )


def test_a_damaged_state_is_refused() -> None:
    running = LocalStream(declared("1s")["tumbling"], 1)
    running.batch([TABLE.slice(0, 50)])
    data = bytearray(running.steps[0].state.to_bytes())
    data[-9] ^= 1
    with pytest.raises(pk.StateError, match="the state in the checkpoint"):
        ShardState.of(0, 0, bytes(data))


def test_the_list_has_a_row_for_each_shard() -> None:
    found = shards()
    rows = cli.listed(found).to_pylist()
    assert [row["shard"] for row in rows] == [shard_state.label for shard_state in found]
    assert [row["bytes"] for row in rows] == [shard_state.size for shard_state in found]
    assert all(row["latest"].startswith("events: ") and "w2/cells: " in row["rows"] for row in rows)


@pytest.mark.parametrize(
    ("table", "shard", "words"),
    [
        ("w2/cells", None, None),
        (None, 0, "no shard 0; there are "),
        ("w9", None, "no table 'w9'; there are in0/"),
    ],
)
def test_tables_are_shown_by_shard_and_name(
    table: str | None, shard: int | None, words: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    console = Console(width=200, record=True)
    found = shards()
    monkeypatch.setattr(cli, "_read", lambda checkpoint, batch: found)
    monkeypatch.setattr(cli, "Console", lambda: console)
    if words is not None:
        with pytest.raises(pk.PenstockError, match=words):
            cli.show_tables("c", None, table, shard, 5)
        return
    cli.show_tables("c", None, table, shard, 5)
    shown = console.export_text()
    assert [f"shard {shard_state.label}, w2/cells" in shown for shard_state in found] == [True, True]
    assert "w2/marks" not in shown


def test_the_state_after_a_batch_is_read_from_a_checkpoint(spark: Any, tmp_path: Path) -> None:
    feed = Feed(tmp_path)
    feed.put(0, cut(TABLE, [40])[0])
    assert feed.run(spark, "tumbling", scanned=True).exception() is None
    found = shard_states(spark, str(feed.checkpoint))
    assert len(found) == 2
    assert sum(shard_state.counts["read"] for shard_state in found) == cut(TABLE, [40])[0].num_rows
    assert shard_states(spark, str(feed.checkpoint), batch=0)[0].counts == found[0].counts
    with pytest.raises(pk.StateError, match="after batches 0 to 0, not after 7"):
        shard_states(spark, str(feed.checkpoint), batch=7)
    with pytest.raises(pk.StateError, match=r"no state|not the checkpoint"):
        shard_states(spark, str(tmp_path / "input"))
