"""The five queries: in Python, in streaming SQL that Flink reads as well, and in DuckDB's SQL as the oracle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pyarrow as pa

import penstock as pk
from benchmarks.nexmark.generator import AUCTION, BID, PERSON

SCHEMAS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {"person": PERSON, "auction": AUCTION, "bid": BID}
)
TIMES = ("ts", "starttime", "endtime")


@dataclass(frozen=True, slots=True)
class Query:
    """One query. `columns` are those of the answer, in the order in which answers are compared."""

    name: str
    streams: tuple[str, ...]
    columns: tuple[str, ...]
    python: Callable[..., Any]
    sql: str
    oracle: str

    def ours(self, form: str, streams: Mapping[str, Any]) -> Any:
        """Build the query in one form, `python` or `sql`, over streams by name."""
        taken = {name: streams[name] for name in self.streams}
        return self.python(**taken) if form == "python" else pk.sql(self.sql, taken)

    def declared(self, form: str) -> Any:
        """Build the query over streams that are not bound to data yet."""
        return self.ours(form, {name: declare(name) for name in self.streams})

    def answer(self, result: pa.Table) -> pa.Table:
        """Select the columns to compare, times in microseconds."""
        table = result.select(list(self.columns))
        fields = [
            (name, pa.timestamp("us") if name in TIMES else table.schema.field(name).type)
            for name in self.columns
        ]
        return table.cast(pa.schema(fields))


def declare(name: str) -> Any:
    """Declare a stream of the auction site."""
    return pk.stream(name, dict(SCHEMAS[name]), time="ts")


def _currency(bid: Any) -> Any:
    return bid.select(
        ts=pk.col("ts"), auction=pk.col("auction"), bidder=pk.col("bidder"), price=0.908 * pk.col("price")
    )


def _selection(bid: Any) -> Any:
    chosen = bid.filter(pk.col("auction").remainder(123) == 0)
    return chosen.select(ts=pk.col("ts"), auction=pk.col("auction"), price=pk.col("price"))


def _hot_items(bid: Any) -> Any:
    counts = bid.window(pk.sliding("10s", every="2s"), by="auction").agg(num=pk.count())
    hot = counts.window().with_columns(maxn=pk.max("num")).filter(pk.col("num") == pk.col("maxn"))
    return hot.select(*_bounds(), auction=pk.col("auction"), num=pk.col("num"))


def _highest_bid(bid: Any) -> Any:
    bids = bid.window(pk.tumbling("10s")).with_columns(maxprice=pk.max("price"))
    highest = bids.filter(pk.col("price") == pk.col("maxprice"))
    return highest.select(
        "ts",
        starttime=pk.col("window_start"),
        **{name: pk.col(name) for name in ("auction", "bidder", "price")},
    )


def _new_sellers(person: Any, auction: Any) -> Any:
    persons = person.window(pk.tumbling("10s"), by=["id", "name"]).agg(persons=pk.count())
    sellers = auction.window(pk.tumbling("10s"), by="seller").agg(auctions=pk.count())
    both = persons.join(sellers, left_on="id", right_on="seller")
    return both.select(starttime=pk.col("window_start"), id=pk.col("id"), name=pk.col("name"))


def _bounds() -> tuple[Any, Any]:
    return pk.col("window_start").alias("starttime"), pk.col("window_end").alias("endtime")


CURRENCY = "select ts, auction, bidder, cast(0.908 as double) * price as price from bid"
SELECTION = "select ts, auction, price from bid where auction % 123 = 0"
HOT_ITEMS = """select a.starttime, a.endtime, a.auction, a.num
from (select auction, count(*) as num, window_start as starttime, window_end as endtime
      from table(hop(table bid, descriptor(ts), interval '2' second, interval '10' second))
      group by auction, window_start, window_end) as a
join (select max(c.num) as maxn, c.starttime, c.endtime
      from (select count(*) as num, window_start as starttime, window_end as endtime
      from table(hop(table bid, descriptor(ts), interval '2' second, interval '10' second))
      group by auction, window_start, window_end) as c group by c.starttime, c.endtime) as m
on a.starttime = m.starttime and a.endtime = m.endtime and a.num >= m.maxn"""
HIGHEST_BID = """select b.ts, b.window_start as starttime, b.auction, b.bidder, b.price
from (select * from table(tumble(table bid, descriptor(ts), interval '10' second))) as b
join (select max(price) as maxprice, window_start, window_end
      from table(tumble(table bid, descriptor(ts), interval '10' second)) group by window_start, window_end) as m
on b.window_start = m.window_start and b.window_end = m.window_end and b.price = m.maxprice"""
NEW_SELLERS = """select p.starttime, p.id, p.name
from (select id, name, window_start as starttime, window_end as endtime
      from table(tumble(table person, descriptor(ts), interval '10' second)) group by id, name, window_start, window_end) as p
join (select seller, window_start as starttime, window_end as endtime
      from table(tumble(table auction, descriptor(ts), interval '10' second)) group by seller, window_start, window_end) as a
on p.id = a.seller and p.starttime = a.starttime and p.endtime = a.endtime"""

_ORACLE_COUNTS = """with counts as (
  select time_bucket(interval 2 second, ts) - to_seconds(2 * k) as starttime, auction, count(*) as num
  from bid, range(5) as slides(k) group by all)
select starttime, starttime + interval 10 second as endtime, auction, num from counts
qualify num = max(num) over (partition by starttime)"""
_ORACLE_HIGHEST = """select ts, time_bucket(interval 10 second, ts) as starttime, auction, bidder, price from bid
qualify price = max(price) over (partition by starttime)"""
_ORACLE_SELLERS = """select distinct time_bucket(interval 10 second, p.ts) as starttime, p.id, p.name
from person p join auction a
on p.id = a.seller and time_bucket(interval 10 second, p.ts) = time_bucket(interval 10 second, a.ts)"""

QUERIES: Mapping[str, Query] = MappingProxyType(
    {
        query.name: query
        for query in (
            Query("q1", ("bid",), ("ts", "auction", "bidder", "price"), _currency, CURRENCY, CURRENCY),
            Query("q2", ("bid",), ("ts", "auction", "price"), _selection, SELECTION, SELECTION),
            Query(
                "q5",
                ("bid",),
                ("starttime", "endtime", "auction", "num"),
                _hot_items,
                HOT_ITEMS,
                _ORACLE_COUNTS,
            ),
            Query(
                "q7",
                ("bid",),
                ("ts", "starttime", "auction", "bidder", "price"),
                _highest_bid,
                HIGHEST_BID,
                _ORACLE_HIGHEST,
            ),
            Query(
                "q8",
                ("person", "auction"),
                ("starttime", "id", "name"),
                _new_sellers,
                NEW_SELLERS,
                _ORACLE_SELLERS,
            ),
        )
    }
)
