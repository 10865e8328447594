"""Run `python -m benchmarks ysb --windows`: ysb-keyed over Grizzly's matrix of windows, aggregates and keys.

Always `event_type = view`, by campaign. Slow peers are asked about part of the rows, as in `swag.questions`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import pyarrow as pa

import penstock as pk
from benchmarks.figures import Case, Figure, library_speed
from benchmarks.swag.peers import duckdb, polars
from benchmarks.swag.questions import Maker, Peer, Question, question_case
from benchmarks.swag.sweeps import Progress
from benchmarks.workloads import VIEW, Skew, YsbKeyed, ysb_keyed

WINDOW_US = 10_000_000
OVERLAPS = (1, 10, 100, 1_000)
COUNTS = (1, 10, 100, 1_000, 10_000, 100_000)
MOST_RESULTS = 10_000_000
"""Windows x keys of one case: with more overlaps there are fewer keys."""
DRAWN_PART = 2
SLOW_PART = 5
WINDOWS_PER_KEY = 4
"""Full count windows each key should have, even in the part slow peers are asked about."""

AGGREGATES: dict[str, tuple[str, str]] = {
    "sum": ("sum(value)::bigint", "sum"),
    "count": ("count(*)", "len"),
    "mean": ("avg(value)", "mean"),
    "std": ("stddev_samp(value)", "std"),
    "median": ("median(value)", "median"),
    "mode": ("mode(value)", "mode"),
}
"""Each aggregate as DuckDB's SQL and as Polars' method."""


@dataclass(frozen=True, slots=True)
class WindowOptions:
    """What to run, and how often."""

    spec: YsbKeyed
    repeat: int = 3
    threads: int = 2
    peers: tuple[str, ...] = ()


def window_cases(options: WindowOptions, progress: Progress) -> list[Case]:
    """Sliding windows, count windows, and aggregates by uniform and by Zipf keys."""
    asked = [
        *sliding_questions(options.spec),
        *count_questions(options.spec),
        *aggregate_questions(options.spec),
    ]
    return [answered(sweep, at, question, options, progress) for sweep, at, question in asked]


def answered(sweep: str, at: float, asked: Question, options: WindowOptions, progress: Progress) -> Case:
    """Ask one question and put its case into its series."""
    case = question_case(asked, options.spec.rows, options.peers, options.threads, options.repeat, progress)
    return replace(case, sweep=sweep, point=at, figures=(rival_figure(case),))


def rival_figure(case: Case) -> Figure:
    """Penstock's speed over all rows against the best of the peers."""
    ours = library_speed(replace(case, outcomes=case.outcomes[:1]), "Penstock")
    rivals = [fast for name in ("Polars", "DuckDB") if (fast := library_speed(case, name))]
    return Figure("x best peer", ours / max(rivals) if ours and rivals else None)


Asked = Iterator[tuple[str, float, Question]]


def sliding_questions(spec: YsbKeyed) -> Asked:
    """One to a thousand windows at a time."""
    for overlap in OVERLAPS:
        every = WINDOW_US // overlap
        windows = overlap * (1 + spec.rows // DRAWN_PART * 3 // WINDOW_US + 1)
        keys = max(1, min(spec.keys, MOST_RESULTS // windows))
        peers = (
            Peer("Polars", polars_sliding(every), 1 if overlap == 1 else SLOW_PART * 2),
            Peer(
                "DuckDB",
                duckdb(DUCKDB_SLIDING, keyed_answer, size=WINDOW_US, every=every),
                min(overlap, 100),
            ),
        )
        query = partial(sliding_query, every)
        name = f"{overlap:,} at a time, {keys:,} keys"
        yield (
            "sliding windows of 10 s",
            overlap,
            question(name, replace(spec, keys=keys), query, keyed, peers),
        )


def count_questions(spec: YsbKeyed) -> Asked:
    """Count windows of one row to a hundred thousand, with as many keys as fill some."""
    views = spec.rows // DRAWN_PART // SLOW_PART // 3
    for size in COUNTS:
        keys = max(1, min(spec.keys, views // (WINDOWS_PER_KEY * size)))
        peers = (
            Peer("Polars", polars_counts(size), SLOW_PART),
            Peer("DuckDB", duckdb(DUCKDB_COUNTS, keyed_answer, size=size), SLOW_PART),
        )
        name = f"{size:,} rows, {keys:,} keys"
        query = partial(count_query, size)
        yield "count windows", size, question(name, replace(spec, keys=keys), query, keyed, peers)


def aggregate_questions(spec: YsbKeyed) -> Asked:
    """Every aggregate over tumbling windows."""
    for skew in (Skew.UNIFORM, Skew.ZIPF):
        drawn = replace(spec, skew=skew)
        for place, aggregate in enumerate(AGGREGATES):
            part = SLOW_PART if aggregate in ("median", "mode") else 1
            sql = DUCKDB_TUMBLING.replace("AGGREGATE", AGGREGATES[aggregate][0])
            peers = [
                Peer("Polars", polars_tumbling(aggregate), part),
                Peer("Polars, streaming", polars_tumbling(aggregate, "streaming"), part),
            ]
            if aggregate != "mode":  # DuckDB breaks ties another way
                peers.append(Peer("DuckDB", duckdb(sql, keyed_answer, size=WINDOW_US), part))
            query = partial(aggregate_query, aggregate)
            sweep = f"tumbling windows of 10 s, {spec.keys:,} {skew} keys, by aggregate"
            yield sweep, place, question(aggregate, drawn, query, keyed, tuple(peers))


def question(
    name: str,
    spec: YsbKeyed,
    query: Callable[[pa.Table], Any],
    clean: Callable[[pa.Table], pa.Table],
    peers: Sequence[Peer],
) -> Question:
    """A question about one table."""
    return Question(name, partial(drawn_table, spec), query, clean, tuple(peers), spec.keys, part=DRAWN_PART)


@lru_cache(maxsize=1)
def drawn_table(spec: YsbKeyed, rows: int) -> pa.Table:
    """Draw a table, keeping the last one: the next question may be about it too."""
    return ysb_keyed(replace(spec, rows=rows))


# -- Penstock -----------------------------------------------------------------------------------------------


def views(table: pa.Table) -> Any:
    """Keep the views."""
    return pk.from_arrow(table, time="ts").filter(pk.col("event_type") == VIEW)


def sliding_query(every_us: int, table: pa.Table) -> Any:
    """Sum sliding windows of ten seconds."""
    windows = views(table).window(pk.sliding("10s", every=f"{every_us}us"), by="campaign_id")
    return windows.agg(m=pk.sum("value"))


def count_query(size: int, table: pa.Table) -> Any:
    """Sum the views of each campaign, `size` at a time."""
    return views(table).window(pk.rows(size), by="campaign_id").agg(m=pk.sum("value"))


def aggregate_query(aggregate: str, table: pa.Table) -> Any:
    """Aggregate tumbling windows of ten seconds."""
    made = pk.count() if aggregate == "count" else getattr(pk, aggregate)("value")
    return views(table).window(pk.tumbling("10s"), by="campaign_id").agg(m=made)


def keyed(answer: pa.Table) -> pa.Table:
    """Compare window, key and aggregate."""
    return answer.select(["window_start", "campaign_id", "m"])


# -- peers --------------------------------------------------------------------------------------------------

DUCKDB_SLIDING = """
    select make_timestamp(number * $every) as window_start, campaign_id, sum(value)::bigint as m
    from (
        select campaign_id, value,
            unnest(range((epoch_us(ts) - $size) // $every + 1, epoch_us(ts) // $every + 1)) as number
        from t where event_type = 1
    )
    group by all
"""
DUCKDB_COUNTS = """
    with numbered as (
        select campaign_id, ts, value,
            (row_number() over (partition by campaign_id order by ts) - 1) // $size as number
        from t where event_type = 1
    )
    select min(ts) as window_start, campaign_id, sum(value)::bigint as m
    from numbered group by campaign_id, number having count(*) = $size
"""
DUCKDB_TUMBLING = """
    select make_timestamp(epoch_us(ts) // $size * $size) as window_start, campaign_id, AGGREGATE as m
    from t where event_type = 1 group by all
"""


def keyed_answer(answer: pa.Table) -> pa.Table:
    """Give a peer's answer the types of Penstock's."""
    value = answer.column("m")
    return pa.table(
        {
            "window_start": answer.column("window_start").cast(pa.timestamp("us")),
            "campaign_id": answer.column("campaign_id"),
            "m": value if pa.types.is_floating(value.type) else value.cast(pa.int64()),
        }
    )


def polars_sliding(every_us: int) -> Maker:
    """Sum sliding windows of ten seconds; one at a time, by integer division, which is faster."""
    if every_us == WINDOW_US:
        return polars_tumbling("sum")

    def make(frame: Any) -> Any:
        import polars as pl  # noqa: PLC0415 - a peer may be absent

        sliding = {"every": f"{every_us}us", "period": "10s", "offset": f"-{WINDOW_US - every_us}us"}
        seen = frame.filter(pl.col("event_type") == VIEW)
        grouped = seen.group_by_dynamic("ts", group_by="campaign_id", closed="left", **sliding)
        return grouped.agg(pl.col("value").sum().alias("m")).rename({"ts": "window_start"})

    return polars(make, keyed_answer)


def polars_counts(size: int) -> Maker:
    """Sum the views of each campaign, `size` at a time; rows are in time order already."""

    def make(frame: Any) -> Any:
        import polars as pl  # noqa: PLC0415 - a peer may be absent

        number = (pl.int_range(pl.len()).over("campaign_id") // size).alias("number")
        made = pl.col("ts").min().alias("window_start"), pl.col("value").sum().alias("m"), pl.len().alias("n")
        grouped = frame.filter(pl.col("event_type") == VIEW).group_by("campaign_id", number)
        return grouped.agg(*made).filter(pl.col("n") == size)

    return polars(make, keyed_answer)


def polars_tumbling(aggregate: str, engine: str = "in-memory") -> Maker:
    """Aggregate tumbling windows of ten seconds."""

    def make(frame: Any) -> Any:
        import polars as pl  # noqa: PLC0415 - a peer may be absent

        window = (
            (pl.col("ts").to_physical() // WINDOW_US * WINDOW_US)
            .cast(pl.Datetime("us"))
            .alias("window_start")
        )
        made = getattr(pl.col("value"), AGGREGATES[aggregate][1])()
        one = made.min() if aggregate == "mode" else made
        grouped = frame.filter(pl.col("event_type") == VIEW).group_by(window, "campaign_id")
        return grouped.agg(one.alias("m"))

    return polars(make, keyed_answer, engine)
