"""Nexmark on Spark: Penstock's plans over Parquet, batch and streaming, and Spark's own SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import penstock as pk
from benchmarks.contenders import PENSTOCK_GROUP
from benchmarks.nexmark.generator import Events
from benchmarks.nexmark.queries import CURRENCY, SELECTION, Query
from benchmarks.peers import PEER_GROUP
from benchmarks.streaming.runs import Batches

FILES = 4
Run = Callable[[], pa.Table]

_HOT = """with counts as (
  select w.start as starttime, w.end as endtime, auction, num from (
    select window(ts, '10 seconds', '2 seconds') as w, auction, count(*) as num from bid group by 1, 2))
select starttime, endtime, auction, num from (
  select *, max(num) over (partition by starttime) as maxn from counts) where num = maxn"""
_HIGHEST = """with most as (
  select window(ts, '10 seconds').start as starttime, max(price) as maxprice from bid group by window(ts, '10 seconds'))
select b.ts, m.starttime, b.auction, b.bidder, b.price
from (select *, window(ts, '10 seconds').start as starttime from bid) b
join most m on b.starttime = m.starttime and b.price = m.maxprice"""
_SELLERS = """select distinct p.starttime, p.id, p.name
from (select *, window(ts, '10 seconds').start as starttime from person) p
join (select distinct window(ts, '10 seconds').start as starttime, seller from auction) a
on p.id = a.seller and p.starttime = a.starttime"""
OWN: Mapping[str, str] = MappingProxyType(
    {"q1": CURRENCY, "q2": SELECTION, "q5": _HOT, "q7": _HIGHEST, "q8": _SELLERS}
)


def write(events: Events, folder: str, name: str) -> dict[str, str]:
    """Write each stream as Parquet files, in the order of time; return their folders."""
    paths = {}
    for stream, table in events.items():
        path = Path(folder) / f"{name}-{stream}"
        path.mkdir(parents=True)
        size = max(-(-table.num_rows // FILES), 1)
        for number, batch in enumerate(table.combine_chunks().to_batches(max_chunksize=size)):
            pq.write_table(pa.Table.from_batches([batch]), path / f"{number:03}.parquet")
        paths[stream] = str(path)
    return paths


def batch_runs(query: Query, spark: Any, paths: Mapping[str, str]) -> Iterator[tuple[str, Run, str]]:
    """Yield Spark's own way, and ours in each form."""
    for name, path in paths.items():
        frame = spark.read.parquet(path)
        frame.withColumn("ts", frame["ts"].cast("timestamp")).createOrReplaceTempView(name)
    yield "Spark SQL", lambda: spark.sql(OWN[query.name]).toArrow(), PEER_GROUP
    for form in ("python", "sql"):
        yield f"Penstock on Spark, {form}", partial(ours, query, form, spark, paths), PENSTOCK_GROUP


def ours(query: Query, form: str, spark: Any, paths: Mapping[str, str]) -> pa.Table:
    """Collect our query over the files."""
    streams = {name: pk.scan(path, time="ts", name=name) for name, path in paths.items()}
    return query.ours(form, streams).to_spark(spark).toArrow()


def streamed(query: Query, form: str, spark: Any, paths: Mapping[str, str], checkpoint: Path) -> pa.Table:
    """Run our query as a stream, one file of each input a batch, to the end of the files."""
    streams = {
        name: pk.scan_stream(f"{path}/*.parquet", time="ts", name=name, max_files=1)
        for name, path in paths.items()
    }
    sink = Batches()
    writer = query.ours(form, streams).to_spark(spark).writeStream.foreachBatch(sink)
    writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()
    return pa.concat_tables(sink.tables)
