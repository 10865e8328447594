"""The questions that both builds answer. Only public names that every build has are used."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import penstock as pk

Question = Callable[[int, int], Any]
SEED = 20_261_119
LAKE = "PENSTOCK_TURNS_LAKE"  # the environment variable that names the folder of Parquet files


@cache
def clicks(rows: int, keys: int) -> pa.Table:
    """Rows of ysb-keyed: a third are views, 3 µs apart."""
    random = np.random.default_rng(SEED)
    return pa.table(
        {
            "ts": pa.array(np.arange(rows) * 3, pa.timestamp("us")),
            "campaign_id": random.integers(0, keys, rows),
            "event_type": random.integers(0, 3, rows).astype(np.int32),
            "value": random.integers(0, 100, rows),
        }
    )


@cache
def samples(rows: int) -> pa.Table:
    """One value for each tick, uniform in [-50, 50)."""
    return pa.table({"v": np.random.default_rng(SEED).uniform(-50, 50, rows)})


@cache
def pairs(rows: int) -> tuple[pa.Table, pa.Table]:
    """Two sides of a join; each key occurs about four times."""
    random = np.random.default_rng(SEED)
    times = pa.array(np.arange(rows) * 10, pa.timestamp("us"))
    left, right = (random.integers(0, max(rows // 4, 1), rows) for _ in range(2))
    return pa.table({"ts": times, "k": left, "a": left}), pa.table({"ts": times, "k": right, "b": right})


def ysb(rows: int, threads: int) -> Any:
    """Filter, tumbling window, sum by key."""
    events = pk.from_arrow(clicks(rows, 10_000), time="ts")
    views = events.filter(pk.col("event_type") == 1).window(pk.tumbling("10s"), by="campaign_id")
    return views.agg(total=pk.sum("value")).collect(engine=pk.Engine(threads=threads))


def swag(rows: int, threads: int) -> Any:
    """A sliding minimum, sum and mean over 1,000 rows, at each tick."""
    events = pk.from_arrow(clicks(rows // 4, 10), time="ts")
    window = events.window(pk.sliding("3ms", every="24us"))
    return window.agg(lo=pk.min("value"), s=pk.sum("value"), m=pk.mean("value")).collect(
        engine=pk.Engine(threads=threads)
    )


def rolling(rows: int, threads: int) -> Any:
    """A look-back by key."""
    events = pk.from_arrow(clicks(rows // 8, 1_000), time="ts")
    return (
        events.rolling("100ms", by="campaign_id")
        .agg(m=pk.mean("value"))
        .collect(engine=pk.Engine(threads=threads))
    )


def session(rows: int, threads: int) -> Any:
    """Sessions by key."""
    events = pk.from_arrow(clicks(rows // 8, 1_000), time="ts")
    return (
        events.window(pk.session("5ms"), by="campaign_id")
        .agg(s=pk.sum("value"))
        .collect(engine=pk.Engine(threads=threads))
    )


def trend(rows: int, threads: int) -> Any:
    """Two means of one signal, compared at each sample."""
    price = pk.from_arrow(samples(rows), time=pk.every("1ms")).signal("v")
    return (price.rolling("20ms").mean() > price.rolling("50ms").mean()).collect(
        engine=pk.Engine(threads=threads)
    )


def normalise(rows: int, threads: int) -> Any:
    """Each sample less the mean of its window, by its deviation."""
    x = pk.from_arrow(samples(rows), time=pk.every("1ms")).signal("v")
    per = x.per("10s")
    return ((x - per.mean()) / per.std(ddof=0)).collect(engine=pk.Engine(threads=threads))


def window_join(rows: int, threads: int) -> Any:
    """A join within a tumbling window, reduced to a count."""
    left, right = (pk.from_arrow(side, time="ts") for side in pairs(rows // 8))
    return left.join(right, on="k", window=pk.tumbling("1s")).collect(engine=pk.Engine(threads=threads))


def asof_join(rows: int, threads: int) -> Any:
    """Each row with the last one of its key on the other side."""
    left, right = (pk.from_arrow(side, time="ts") for side in pairs(rows // 8))
    return left.join_asof(right, by="k").collect(engine=pk.Engine(threads=threads))


def small(rows: int, threads: int) -> Any:
    """A thousand rows: what surrounds the kernels."""
    del rows
    return ysb(1_000, threads)


def files(rows: int, threads: int) -> Any:
    """The query of ysb over Parquet files."""
    events = pk.scan(str(lake(rows) / "*.parquet"), time="ts")
    views = events.filter(pk.col("event_type") == 1).window(pk.tumbling("10s"), by="campaign_id")
    return views.agg(total=pk.sum("value")).collect(engine=pk.Engine(threads=threads))


def spark(rows: int, threads: int) -> Any:
    """The query of ysb over Parquet files, by Spark."""
    import warnings  # noqa: PLC0415 - Spark warns of its own modules

    warnings.simplefilter("ignore")
    session = pk.spark_session(master=f"local[{threads}]")
    events = pk.scan(str(lake(rows) / "*.parquet"), time="ts")
    views = events.filter(pk.col("event_type") == 1).window(pk.tumbling("10s"), by="campaign_id")
    return views.agg(total=pk.sum("value")).to_spark(session).toArrow()


def lake(rows: int) -> Path:
    """The folder of Parquet files with these rows; written once."""
    import os  # noqa: PLC0415 - only two questions read files

    folder = Path(os.environ[LAKE]) / str(rows)
    if not folder.exists():
        folder.mkdir(parents=True)
        table = clicks(rows, 10_000)
        for part in range(4):
            length = -(-rows // 4)
            pq.write_table(table.slice(part * length, length), folder / f"{part}.parquet")
    return folder


QUESTIONS: dict[str, Question] = {
    question.__name__: question
    for question in (
        ysb,
        swag,
        rolling,
        session,
        trend,
        normalise,
        window_join,
        asof_join,
        small,
        files,
        spark,
    )
}
