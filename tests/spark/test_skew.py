"""Hot keys of a join are dealt out to all tasks: one answer, and no task has most of the rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as pk
from penstock.analysis.partition_keys import spreadable
from penstock.api.execute import bind_all
from penstock.spark.exchange import unpacked
from penstock.spark.frame import Wiring
from penstock.spark.planning import planned
from penstock.spark.tasks import Receive
from tests.spark.agree import assert_same
from tests.spark.lakes import lake
from tests.spark.local import LocalSpark, run_locally

TASKS = 4


def rows(count: int, seed: int, value: str) -> pa.Table:
    """Most rows have one key."""
    rng = np.random.default_rng(seed)
    keys = np.where(rng.random(count) < 0.9, 7, rng.integers(0, 50, count))
    times = np.sort(rng.integers(0, 2_000_000, count))
    return pa.table({"ts": pa.array(times, pa.timestamp("us")), "k": keys, value: np.arange(count)})


LEFT, RIGHT = rows(1200, 1, "x"), rows(40, 2, "y")
QUERIES: dict[str, Any] = {
    "in windows": lambda a, b: a.join(b, on="k", window="100ms"),
    "left": lambda a, b: a.join(b, on="k", window="100ms", how="left"),
    "anti": lambda a, b: a.join(b, on="k", window="100ms", how="anti"),
    "sliding": lambda a, b: a.join(b, on="k", window=pk.sliding("100ms", "50ms")),
    "within": lambda a, b: a.join(b, on="k", within=("-20ms", "20ms"), where=pk.left("x") != pk.right("y")),
    "as of": lambda a, b: a.join_asof(b, by="k", tolerance="1s"),
    "rolling": lambda a, b: a.join_rolling(b, by="k", within=("-1s", "0s")).agg(n=pk.count(), m=pk.max("y")),
    "filtered": lambda a, b: (
        a.filter(pk.col("x") > 5).join(b, on="k", window="100ms").with_columns(z=pk.col("x") + 1)
    ),
}
NOT_SPREAD: dict[str, Any] = {
    "full": lambda a, b: a.join(b, on="k", window="100ms", how="full"),
    "session": lambda a, b: a.join(b, on="k", window=pk.session("1ms")),
    "then windows": lambda a, b: (
        a.join(b, on="k", within=("-20ms", "20ms")).window("1s", by="k").agg(m=pk.median("y"))
    ),
    "self": lambda a, b: a.join(a, on="k", window="1ms"),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder: Path = tmp_path_factory.mktemp("skew")
    return {"a": lake(folder / "a", LEFT, files=3), "b": lake(folder / "b", RIGHT, files=2)}


def scanned(folders: dict[str, str], query: Any) -> pk.Stream:
    return query(*(pk.scan(folders[name], time="ts", name=name) for name in "ab"))


def in_process(query: Any) -> pa.Table:
    made = (pk.from_arrow(table, time="ts", name=name) for name, table in (("a", LEFT), ("b", RIGHT)))
    return query(*made).collect()


# A slice of them each time; the others in `make spark`.
SLICE = ("in windows", "as of", "self")
NAMES = [
    pytest.param(name, marks=() if name in SLICE else pytest.mark.campaign)
    for name in [*QUERIES, *NOT_SPREAD]
]


@pytest.mark.parametrize("name", NAMES)
def test_hot_keys_do_not_change_the_answer(folders: dict[str, str], name: str) -> None:
    query = {**QUERIES, **NOT_SPREAD}[name]
    for seed in range(2):
        assert_same(in_process(query), run_locally(scanned(folders, query), "keys", TASKS, seed), name)


@pytest.mark.parametrize("name", [*QUERIES, *NOT_SPREAD])
def test_which_joins_are_spread(folders: dict[str, str], name: str) -> None:
    query = {**QUERIES, **NOT_SPREAD}[name]
    found = spreadable(scanned(folders, query).compiled().program)
    assert found[:1] == (("a",) if name in QUERIES else ())
    assert (found == ("a", "b")) is (name in {"in windows", "sliding", "within", "filtered"})


def test_a_hot_key_of_a_look_back_is_divided_by_time(
    folders: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of one key cannot be spread over tasks, but results that reach a known length of time can be cut in time."""
    monkeypatch.setattr("penstock.spark.planning.LEAST_ROWS_PER_TASK", 100)

    def look_back(a: Any, b: Any) -> Any:
        return a.rolling("50ms", by="k").agg(t=pk.sum("x"))

    shuffled = lake(Path(folders["a"]).parent / "shuffled", LEFT, files=3, shuffled=True)
    query = look_back(pk.scan(shuffled, time="ts", name="a"), None)
    physical = planned(query.compiled(), query.data, None, TASKS)
    assert physical.choice.strategy == "keys"
    received: list[Receive] = []
    one = Receive.__call__

    def noted(self: Receive, batches: Any) -> Any:
        received.append(self)
        return one(self, batches)

    monkeypatch.setattr(Receive, "__call__", noted)
    for strategy in (None, "keys"):
        received.clear()
        assert_same(in_process(look_back), run_locally(query, strategy, TASKS), "look-back")
        assert all((receive.ranges is None) == (strategy == "keys") for receive in received)


def test_a_window_of_all_rows_is_not_divided_by_keys(folders: dict[str, str]) -> None:
    """Its bounds are the times of the first and last row of all keys."""
    query = scanned(folders, lambda a, b: a.join(b, on="k", window=pk.unbounded()))
    with pytest.raises(pk.EngineError, match="one window for all keys"):
        run_locally(query, "keys", TASKS)


def test_no_task_has_most_of_the_rows(folders: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def counted(self: Receive, batches: Any) -> Any:
        several = {
            (shuffle_payload.place, shuffle_payload.name): shuffle_payload
            for shuffle_payload in unpacked(batches)
        }
        sizes.append(
            sum(
                shuffle_payload.table.num_rows
                for shuffle_payload in several.values()
                if shuffle_payload.name == "a"
            )
        )
        return iter(())

    monkeypatch.setattr(Receive, "__call__", counted)
    query = scanned(folders, QUERIES["in windows"])
    physical = planned(query.compiled(), bind_all(query, None, {}), "keys", TASKS)
    for hot in (True, False):
        sizes.clear()
        if not hot:
            monkeypatch.setattr(Wiring, "_hot", lambda self, send: None)
        assert Wiring(LocalSpark(1), physical, None, ()).frame().partitions  # type: ignore[arg-type]
        assert sum(sizes) == LEFT.num_rows
        # Shards meet in partitions as hashing lets them: with this seed at most two of four.
        assert max(sizes) <= 0.55 * LEFT.num_rows if hot else max(sizes) > 0.85 * LEFT.num_rows


@pytest.mark.campaign
def test_spark_gives_the_answer_of_this_process(spark: Any, folders: dict[str, str]) -> None:
    query = QUERIES["in windows"]
    assert_same(
        in_process(query), scanned(folders, query).to_spark(spark, tasks=2, strategy="keys").toArrow(), ""
    )
