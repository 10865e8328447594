"""Run Nexmark: at rest, live and in SQL, beside DuckDB, Flink and Spark, over the same events; answers are compared."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import exp, log
from typing import Any

import pyarrow as pa

import penstock as pk
from benchmarks.answers import agree, normalise
from benchmarks.contenders import PENSTOCK_GROUP
from benchmarks.figures import Case, Figure, ratio
from benchmarks.live.peers import PeerError
from benchmarks.measure import Contender, Outcome, compare
from benchmarks.nexmark.flink import Flink, open_flink
from benchmarks.nexmark.generator import Events, Nexmark, generate
from benchmarks.nexmark.queries import QUERIES, TIMES, Query
from benchmarks.peers import PEER_GROUP

FORMS = ("python", "sql")
BUFFERS = (1_000, 100_000)
LIVE = "Penstock live, sql, 100,000 rows a push"
MEAN, LEAST = 10.0, 3.0
"""What is wanted of events a second against Flink: the geometric mean of the queries, and each."""
SLICE = 200_000
"""Events over which answers are compared with Flink's, which gives them as text; one a millisecond, the unit of its times."""
FEW = 10
"""Queries without bids get so many times the events: bids are 46 of 50."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class NexmarkOptions:
    """Events, threads, rounds, queries and peers of a run."""

    events: int = 5_000_000
    threads: int = 2
    repeat: int = 3
    queries: Sequence[str] = tuple(QUERIES)
    peers: Sequence[str] = ("duckdb",)


def nexmark_cases(options: NexmarkOptions, progress: Progress) -> Iterator[Case]:
    """Yield a case for each query, measured at rest and live, Flink in a process of its own afterwards."""
    with open_flink() as flink:
        for name in options.queries:
            query = QUERIES[name]
            progress(f"{name}: events")
            spec = Nexmark(options.events * (1 if "bid" in query.streams else FEW))
            events = generate(spec, query.streams)
            yield nexmark_case(query, events, options, flink if "flink" in options.peers else None, progress)


def nexmark_case(
    query: Query, events: Events, options: NexmarkOptions, flink: Flink | None, progress: Progress
) -> Case:
    """Measure one query in all forms and places."""
    rows = sum(events[name].num_rows for name in query.streams)
    outcomes = compare([*contenders(query, events, options)], options.repeat, progress)
    figures: list[Figure] = []
    if flink is not None:
        progress(f"{query.name}: Flink")
        theirs, source = flink_outcomes(query, events, options.threads, flink)
        outcomes += theirs
        figures += flink_figures(outcomes, source)
    return Case(query.name, rows, 0, tuple(outcomes), tuple(figures))


def contenders(query: Query, events: Events, options: NexmarkOptions) -> Iterator[Contender]:
    """Yield the oracle, and Penstock in each form at rest and live."""
    threads, engine = options.threads, pk.Engine(threads=options.threads)
    data = {name: events[name] for name in query.streams}
    if "duckdb" in options.peers:
        yield Contender(
            "DuckDB", partial(oracle, query, data, threads), query.answer, threads=threads, group=PEER_GROUP
        )
    for form in FORMS:
        made = query.declared(form)
        run = partial(made.collect, engine=engine, **data)
        yield Contender(f"Penstock at rest, {form}", run, query.answer, threads, PENSTOCK_GROUP)
    for form in FORMS:
        for buffer in BUFFERS:
            name = f"Penstock live, {form}, {buffer:,} rows a push"
            run = partial(pushed, query.declared(form), data, buffer, engine)
            yield Contender(name, run, query.answer, threads, PENSTOCK_GROUP)


def oracle(query: Query, data: Events, threads: int) -> pa.Table:
    """Ask DuckDB."""
    import duckdb  # noqa: PLC0415 - an optional peer

    with duckdb.connect(config={"threads": threads}) as connection:
        for name, table in data.items():
            connection.register(name, table)
        return connection.sql(query.oracle).to_arrow_table()


def pushed(query: Any, data: Events, buffer: int, engine: pk.Engine) -> pa.Table:
    """Push the streams side by side, each batch with those of the others of its time."""
    made: list[pa.RecordBatch] = []
    with query.open(engine=engine) as live:
        for batches in side_by_side(data, buffer):
            made += live.push(**batches)
        made += live.finish()
    return pa.Table.from_batches(made, query.schema)


def side_by_side(data: Events, buffer: int) -> Iterator[dict[str, pa.RecordBatch]]:
    """Cut all streams into as many batches, so that times advance together."""
    pushes = max(-(-sum(table.num_rows for table in data.values()) // buffer), 1)
    pieces = {
        name: iter(table.combine_chunks().to_batches(max_chunksize=max(-(-table.num_rows // pushes), 1)))
        for name, table in data.items()
    }
    while batches := {
        name: piece for name, rest in pieces.items() if (piece := next(rest, None)) is not None
    }:
        yield batches


# --- Flink --------------------------------------------------------------------------------------------------


def flink_outcomes(
    query: Query, events: Events, threads: int, flink: Flink
) -> tuple[list[Outcome], Outcome | None]:
    """Return an outcome for each setting, and one of the source alone."""
    try:
        right = agrees_with_flink(query, threads, flink)
        found = {
            f"Flink{', mini-batch' if mini else ''}": flink.speed(query, events, threads, mini)
            for mini in (False, True)
        }
        found["Flink's source alone"] = flink.source(query, events, threads)
    except PeerError as error:
        return [Outcome("Flink", PEER_GROUP, threads, error=str(error))], None
    made = []
    for name, rounds in found.items():
        outcome = Outcome(name, PEER_GROUP, threads, agrees=right, rows=rounds[0].rows)
        outcome.seconds = [measured_round.seconds for measured_round in rounds]
        outcome.cpu_seconds = [measured_round.cpu_seconds for measured_round in rounds]
        made.append(outcome)
    return made, made[-1]


def agrees_with_flink(query: Query, threads: int, flink: Flink) -> bool:
    """Compare answers over a slice of events; Flink's times are milliseconds."""
    events = generate(Nexmark(SLICE, rate=1_000), query.streams)
    theirs = flink.answer(query, events, threads)
    ours = query.answer(query.declared("sql").collect(**events)).cast(theirs.schema, safe=False)
    return agree(normalise(ours), normalise(theirs))


def flink_figures(outcomes: Sequence[Outcome], source: Outcome | None) -> Iterator[Figure]:
    """Compare live SQL in large buffers with the better of Flink's settings, by the clock and by processor time."""
    ours = next(outcome for outcome in outcomes if outcome.name == LIVE)
    theirs = [outcome for outcome in outcomes if outcome.name.startswith("Flink") and outcome is not source]
    clock = min((outcome.best for outcome in theirs if outcome.best), default=None)
    work = min((outcome.best_cpu for outcome in theirs if outcome.best_cpu), default=None)
    yield Figure("events a second, live SQL / Flink", ratio(clock, ours.best), LEAST)
    yield Figure("the same by processor time", ratio(work, ours.best_cpu))


def geometric_mean(cases: Sequence[Case]) -> Iterator[Figure]:
    """Summarise the ratios to Flink over all queries."""
    for place, title in enumerate(("by the clock", "by processor time")):
        found = [case.figures[place].value for case in cases if len(case.figures) > 1]
        known = [value for value in found if value]
        if known:
            mean = exp(sum(map(log, known)) / len(known))
            yield Figure(f"geometric mean of {len(known)} queries / Flink, {title}", mean, MEAN)


# --- Spark --------------------------------------------------------------------------------------------------


def spark_cases(options: NexmarkOptions, progress: Progress) -> Iterator[Case]:
    """Start Spark, and yield a case for each query."""
    progress("starting Spark")
    spark = pk.spark_session(f"local[{options.threads}]", name="penstock nexmark", memory="4g")
    try:
        with tempfile.TemporaryDirectory(prefix="penstock-nexmark-") as folder:
            for name in options.queries:
                yield spark_case(QUERIES[name], options, spark, folder, progress)
    finally:
        spark.stop()


def spark_times(table: pa.Table) -> pa.Table:
    """Give times of results from Spark without a zone: the session's is UTC."""
    fields = [field.with_type(pa.timestamp("us")) if field.name in TIMES else field for field in table.schema]
    return table.cast(pa.schema(fields))


def spark_case(query: Query, options: NexmarkOptions, spark: Any, folder: str, progress: Progress) -> Case:
    """Measure one query on Spark over Parquet: Penstock's plan, and Spark's own SQL."""
    from benchmarks.nexmark import spark as places  # noqa: PLC0415 - needs pyspark
    from benchmarks.scale.processors import FamilyClock  # noqa: PLC0415

    events = generate(Nexmark(options.events), query.streams)
    paths = places.write(events, folder, query.name)
    rows = sum(table.num_rows for table in events.values())
    made = [
        Contender(name, run, lambda table: query.answer(spark_times(table)), options.threads, group)
        for name, run, group in places.batch_runs(query, spark, paths)
    ]
    outcomes = compare(made, options.repeat, progress, FamilyClock())
    best = {outcome.name: outcome for outcome in outcomes}
    own, theirs = best["Penstock on Spark, sql"], best["Spark SQL"]
    figures = (
        Figure("Penstock on Spark / Spark SQL", ratio(theirs.best, own.best)),
        Figure("the same by processor time", ratio(theirs.best_cpu, own.best_cpu)),
    )
    return Case(f"{query.name}, on Spark", rows, 0, tuple(outcomes), figures)
