"""What goes wrong in a cluster: tasks that die, files that are damaged. Same answer, or the file's name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as pk
from penstock.spark import frame as spark_frame
from penstock.spark.tasks import OverParts
from tests.spark.agree import assert_same
from tests.spark.lakes import events, lake

TABLE = events()


@pytest.mark.parametrize(
    "strategy", ["fragments", *(pytest.param(s, marks=pytest.mark.campaign) for s in ("slices", "keys"))]
)
def test_a_worker_killed_halfway_changes_nothing(
    spark: Any, tmp_path: Path, strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = (
        pk.scan(lake(tmp_path / "lake", TABLE), time="ts", sequence="n")
        .window("10s", by="k")
        .agg(t=pk.sum("v"))
    )
    (tmp_path / "marks").mkdir()
    marks = str(tmp_path / "marks")

    def dying(work: Any, parts: Any, accesses: Any = None, step: int = 1) -> Any:
        inner = OverParts.of(work, parts, accesses, step)

        def run(batches: Any) -> Any:  # by value: workers know no tests
            import os
            import signal
            from pathlib import Path

            for batch in inner(batches):
                yield batch
                mark = Path(marks, "killed")
                if not mark.exists():
                    mark.touch()
                    os.kill(os.getpid(), signal.SIGKILL)

        return run

    class Dying:
        of = staticmethod(dying)

    monkeypatch.setattr(spark_frame, "OverParts", Dying)
    result = query.to_spark(spark, strategy=strategy, tasks=2).toArrow()
    assert (tmp_path / "marks" / "killed").exists()
    assert_same(query.collect(), result, strategy)


def test_workers_do_not_look_through_all_that_is_loaded_after_every_task(spark: Any, tmp_path: Path) -> None:
    query = pk.scan(lake(tmp_path / "lake", TABLE), time="ts").window("10s").agg(n=pk.count())

    def frozen(batches: Any) -> Any:  # by value: workers know no tests
        import gc

        import pyarrow as pa

        for _ in batches:
            yield pa.record_batch({"n": [gc.get_freeze_count()]})

    query.to_spark(spark, tasks=2).toArrow()
    counts = spark.range(0, 2, 1, 2).mapInArrow(frozen, "n long").toArrow()
    assert max(counts["n"].to_pylist()) > 10_000


def test_a_file_damaged_after_planning_is_named(spark: Any, tmp_path: Path) -> None:
    folder = lake(tmp_path / "lake", TABLE)
    frame = pk.scan(folder, time="ts").window("10s", by="k").agg(t=pk.sum("v")).to_spark(spark, tasks=2)
    damaged = Path(folder) / "002.parquet"
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:100] + bytes(len(whole) - 200) + whole[-100:])
    with pytest.raises(Exception, match=r"002\.parquet"):
        frame.toArrow()


def test_a_file_that_is_none_is_named_before_a_job_starts(spark: Any, tmp_path: Path) -> None:
    folder = lake(tmp_path / "lake", TABLE)
    (Path(folder) / "001.parquet").write_bytes(b"PAR1 this is not a file PAR1")
    with pytest.raises(pk.SourceError, match=r"001\.parquet"):
        pk.scan(folder, time="ts").window("10s", by="k").agg(t=pk.sum("v")).to_spark(spark)


def test_an_overflow_in_an_executor_says_what_it_is(spark: Any, tmp_path: Path) -> None:
    table = pa.table({"t": [1, 2], "v": [2**63 - 1, 2**63 - 1]})
    query = pk.scan(lake(tmp_path / "lake", table, files=1), time="t").window(10).agg(s=pk.sum("v"))
    with pytest.raises(Exception, match=r"sum\(v\) does not fit int64") as caught:
        query.to_spark(spark).toArrow()
    assert str(2**63 - 1) not in str(caught.value)


def test_streams_are_bound_before_anything_runs(spark: Any) -> None:
    declared = pk.stream("events", TABLE.schema, time="ts").window("1m").agg(n=pk.count())
    with pytest.raises(pk.BindingError, match="no data is bound"):
        declared.to_spark(spark)
    with pytest.raises(pk.SchemaMismatchError, match="no column 'k'"):
        declared.to_spark(spark, events=spark.sql("select timestamp'2024-01-01' as ts, 1 as n"))
    with pytest.raises(pk.EngineError, match="tasks must be at least 1"):
        declared.to_spark(spark, events=spark.createDataFrame(TABLE), tasks=-1)
    implied = pk.stream("ecg", {"mv": "float64"}, time=pk.every("4ms")).window("1s").agg(m=pk.max("mv"))
    with pytest.raises(pk.BindingError, match="rows of a DataFrame have none"):
        implied.to_spark(spark, ecg=spark.sql("select cast(1 as double) as mv"))
