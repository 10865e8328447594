"""Checkpoints of Spark that somebody damaged, or from which commits are gone: an error of ours or the right answer."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as pk
from penstock.spark.streaming.executor_errors import problem_in
from tests.spark.agree import assert_same
from tests.spark.streaming.feed import Feed
from tests.spark.streaming.test_micro_batches import LAST, TABLE, cut, declared

PARTS = [*cut(TABLE, [30, 60, 90, 120]), LAST]

Damage = Callable[[bytes], bytes]


def flipped(place: float) -> Damage:
    """Turn one bit around."""

    def damage(data: bytes) -> bytes:
        at = int(place * (len(data) - 1))
        return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]

    return damage


DAMAGES: dict[str, Damage] = {
    "cut to nothing": lambda data: b"",
    "cut in half": lambda data: data[: len(data) // 2],
    "one byte short": lambda data: data[:-1],
    "more behind it": lambda data: data + b"\0" * 16,
    **{f"a bit at {place:.0%}": flipped(place) for place in (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)},
}
# Spark stops reading where its own mark of the end stands: what lies behind that is nothing to the state.
BEHIND = ("one byte short", "more behind it", "a bit at 100%")


def uncommitted(feed: Feed) -> None:
    """Be the crash between the sink's commit and Spark's."""
    newest = max((feed.checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)


def test_two_batches_come_again_because_their_commits_are_gone(spark: Any, tmp_path: Path) -> None:
    each_comes_twice(spark, Feed(tmp_path), "sliding", True, [TABLE, LAST])


def test_a_query_starts_though_its_driver_was_killed_while_it_wrote_its_first_offsets(
    spark: Any, tmp_path: Path
) -> None:
    feed = Feed(tmp_path)
    offsets = feed.checkpoint / "offsets"
    offsets.mkdir(parents=True)
    for name in (
        ".0.c1ff7b83-447f-447a-a04c-945d2e5cac0b.tmp",
        "..0.c1ff7b83-447f-447a-a04c-945d2e5cac0b.tmp.crc",
    ):
        (offsets / name).touch()
    for number, part in enumerate([TABLE, LAST]):
        feed.put(number, part)
    assert feed.run(spark, "sliding", True).exception() is None
    want = declared("1s")["sliding"].collect(TABLE)
    assert_same(
        want, feed.result(want.schema), "sliding, in a checkpoint with nothing but what a killed driver left"
    )


def test_states_of_an_earlier_life_are_not_gone_on_from(spark: Any, tmp_path: Path) -> None:
    """Somebody has deleted a part of a checkpoint: the query begins anew, whatever lies in `state`."""
    before, after = Feed(tmp_path / "before"), Feed(tmp_path / "after")
    for feed in (before, after):
        feed.folder.mkdir()
        feed.put(0, TABLE)
    assert before.run(spark, "sliding", True).exception() is None
    for name in ("offsets", "commits"):
        shutil.rmtree(before.checkpoint / name)
    shutil.copytree(before.checkpoint, after.checkpoint)
    after.put(1, LAST)
    assert after.run(spark, "sliding", True).exception() is None
    want = declared("1s")["sliding"].collect(TABLE)
    assert_same(want, after.result(want.schema), "sliding, beside states of an earlier life")


@pytest.mark.campaign  # a query starts for every batch, more than a minute
@pytest.mark.parametrize(("name", "scanned"), [("sliding", True), ("sessions", False)])
def test_each_batch_may_come_again_because_its_commit_is_gone(
    spark: Any, tmp_path: Path, name: str, scanned: bool
) -> None:
    each_comes_twice(spark, Feed(tmp_path), name, scanned, PARTS)


def each_comes_twice(spark: Any, feed: Feed, name: str, scanned: bool, parts: Sequence[pa.Table]) -> None:
    """Run a batch for each part, and once more with the next: its commit is deleted, though the sink has it."""
    for number, part in enumerate(parts):
        feed.put(number, part)
        run = feed.run(spark, name, scanned)
        assert run.exception() is None
        newest = max(int(path.name) for path in (feed.checkpoint / "commits").glob("[0-9]*"))
        assert newest == number, "every file is a batch, and none was left out or read anew"
        uncommitted(feed)
    assert feed.run(spark, name, scanned).exception() is None
    want = declared("1s")[name].collect(TABLE)
    assert_same(want, feed.result(want.schema), f"{name}, after each of {len(parts)} batches came twice")


def prepared(spark: Any, folder: Path) -> Feed:
    """Run two batches of a query, and have the rest of its input ready."""
    feed = Feed(folder)
    feed.put(0, PARTS[0])
    feed.put(1, PARTS[1])
    assert feed.run(spark, "tumbling", scanned=True).exception() is None
    feed.put(2, LAST)
    return feed


def newest_states(checkpoint: Path) -> list[Path]:
    """List the files of the last version of the state that hold anything of ours, one for each shard."""
    every = [entry for entry in checkpoint.glob("state/0/[0-9]*/[0-9]*.*") if entry.stat().st_size]
    last = max(
        int(candidate.name.partition(".")[0]) for candidate in every
    )  # before Spark 4.2 both files are one batch
    found = [candidate for candidate in every if candidate.name.startswith(f"{last}.")]
    return sorted(found, key=lambda path: path.stat().st_size)[-2:]


def gone_on(spark: Any, feed: Feed, checkpoint: Path) -> tuple[Any, list[pa.Table]]:
    """Go on from a checkpoint; give the query, and what it gave."""
    tables: list[pa.Table] = []
    writer = feed.query(spark, "tumbling", scanned=True).to_spark(spark).writeStream
    started = (
        writer.option("checkpointLocation", str(checkpoint))
        .foreachBatch(lambda frame, _: tables.append(frame.toArrow()))
        .trigger(availableNow=True)
        .start()
    )
    try:
        started.awaitTermination()
    except Exception:  # noqa: BLE001 - what it was is asked of the query
        assert started.exception() is not None
    return started, tables


def damaged(feed: Feed, folder: Path, damage: Damage, known: bool) -> Path:
    """Copy a checkpoint and spoil the state in it; unless `known`, without the checksums that Hadoop keeps beside it."""
    copy = folder / "checkpoint"
    shutil.copytree(feed.checkpoint, copy)
    for path in newest_states(copy):
        path.write_bytes(damage(path.read_bytes()))
        if not known:
            (path.parent / f".{path.name}.crc").unlink(missing_ok=True)
    return copy


def assert_never_wrong(spark: Any, feed: Feed, folder: Path, damage: Damage, known: bool, what: str) -> bool:
    """Go on from a damaged checkpoint; tell whether the damage was found."""
    query, tables = gone_on(spark, feed, damaged(feed, folder, damage, known))
    if query.exception() is None:
        right = gone_on(spark, feed, damaged(feed, folder / "right", lambda data: data, known=True))[1]
        assert_same(pa.concat_tables(right), pa.concat_tables(tables), what)
        return False
    assert isinstance(pk.streaming_problem(query), pk.StateError), f"{what}: {query.exception()}"
    assert tables == [], f"{what}: results were given all the same"
    return True


@pytest.fixture(scope="module")
def feed(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Feed:
    return prepared(spark, tmp_path_factory.mktemp("stream"))


def test_a_state_that_was_cut_in_half_is_an_error_of_ours(spark: Any, feed: Feed, tmp_path: Path) -> None:
    assert len(newest_states(feed.checkpoint)) == 2
    assert assert_never_wrong(spark, feed, tmp_path, DAMAGES["cut in half"], known=False, what="cut in half")


@pytest.mark.campaign  # a query starts for every damage
@pytest.mark.parametrize("known", [False, True], ids=["bare", "with checksums beside it"])
@pytest.mark.parametrize("what", DAMAGES)
def test_no_damage_to_a_state_gives_a_wrong_number(
    spark: Any, feed: Feed, tmp_path: Path, what: str, known: bool
) -> None:
    found = assert_never_wrong(spark, feed, tmp_path, DAMAGES[what], known, what)
    assert found or what in BEHIND


def test_what_spark_finds_out_itself_is_an_error_of_ours_too() -> None:
    text = "[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state."
    assert isinstance(problem_in(text), pk.StateError)
    text = "Traceback: ModuleNotFoundError: No module named 'penstock'"
    assert str(problem_in(text)).startswith(
        "a Python worker of Spark cannot import Penstock: call pk.ship(spark)"
    )
    assert problem_in("[DIVIDE_BY_ZERO] something of the user's") is None
