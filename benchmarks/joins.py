"""Run `python -m benchmarks joins`: pairs, intervals, the nearest row and aggregates around, beside Polars and DuckDB.

Every contender makes the same columns of the same rows; peers get their tables in their own form, outside the timing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

import penstock as pk
from benchmarks.figures import Case, Figure, named, ratio
from benchmarks.measure import Contender, Outcome, compare
from benchmarks.options import SuiteOptions
from benchmarks.peers import PEER_GROUP

WINDOW = 1_000_000  # ticks
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Subject:
    """One question: the query, the same in SQL and in Polars, and what must be reached against each."""

    name: str
    left: pa.Table
    right: pa.Table
    query: Callable[[pk.Stream, pk.Stream], pk.Stream]
    columns: tuple[str, ...]
    sql: str
    polars: Callable[[object, object], object] | None
    targets: dict[str, float]


def joins_cases(options: SuiteOptions, progress: Progress) -> list[Case]:
    """Run every question."""
    made = (windows, duplicates, nearest, intervals)
    # Each row meets a hundred others here, which the peer writes down: a tenth of the rows is as much work for it.
    subjects = [*(make(options.rows) for make in made), around(options.rows // 10)]
    return [run_case(subject, options, progress) for subject in subjects]


def run_case(subject: Subject, options: SuiteOptions, progress: Progress) -> Case:
    """Line up the contenders of a question and compare them."""
    progress(subject.name)
    outcomes = compare(contenders(subject, options), options.repeat, progress)
    rows = subject.left.num_rows + subject.right.num_rows
    return Case(subject.name, rows, 0, tuple(outcomes), figures(subject, outcomes))


def figures(subject: Subject, outcomes: Sequence[Outcome]) -> tuple[Figure, ...]:
    """Our speed against that of each peer."""
    ours = named(outcomes, "Penstock")
    return tuple(
        Figure(f"Penstock / {peer}", ratio(named(outcomes, peer), ours), target)
        for peer, target in subject.targets.items()
    )


def contenders(subject: Subject, options: SuiteOptions) -> list[Contender]:
    """Ourselves, and the peers asked for."""
    left = pk.from_arrow(subject.left, time="t", name="a")
    right = pk.from_arrow(subject.right, time="t", name="b")
    query, engine = subject.query(left, right), pk.Engine(threads=options.threads)
    wanted = list(subject.columns)
    found = [
        Contender(
            "Penstock",
            lambda: query.collect(engine=engine),
            lambda table: table.select(wanted),
            options.threads,
        )
    ]
    if "duckdb" in options.peers:
        found.append(duckdb_contender(subject, options.threads))
    if "polars" in options.peers and subject.polars is not None:
        found.append(polars_contender(subject, subject.polars))
    return found


def duckdb_contender(subject: Subject, threads: int) -> Contender:
    """The question in SQL, over tables of DuckDB's own."""
    import duckdb  # noqa: PLC0415 - a peer may be absent

    connection = duckdb.connect(config={"threads": threads})
    connection.execute("set enable_progress_bar = false")
    for name, table in (("a", subject.left), ("b", subject.right)):
        connection.register("given", table)
        connection.execute(f"create table {name} as select * from given")  # noqa: S608 - names of ours
        connection.unregister("given")
    return Contender(
        "DuckDB", lambda: connection.sql(subject.sql).to_arrow_table(), _plain(subject), threads, PEER_GROUP
    )


def polars_contender(subject: Subject, ask: Callable[[object, object], object]) -> Contender:
    """The question in Polars, over its own frames."""
    import polars as pl  # noqa: PLC0415 - a peer may be absent

    left, right = pl.DataFrame(subject.left), pl.DataFrame(subject.right)
    plain = _plain(subject)
    return Contender(
        "Polars",
        lambda: ask(left, right),
        lambda frame: plain(frame.to_arrow()),
        pl.thread_pool_size(),
        PEER_GROUP,
    )


def _plain(subject: Subject) -> Callable[[pa.Table], pa.Table]:
    """The columns that are compared, in the types we give them."""
    left = pk.from_arrow(subject.left, time="t", name="a")
    right = pk.from_arrow(subject.right, time="t", name="b")
    schema = subject.query(left, right).schema
    wanted = pa.schema([schema.field(name) for name in subject.columns])
    return lambda table: table.select(list(subject.columns)).cast(wanted)


# --- the questions ----------------------------------------------------------------------------------


def streams(rows: int, keys: np.ndarray, other: np.ndarray, span: int) -> tuple[pa.Table, pa.Table]:
    """Make two streams over the same time."""
    rng = np.random.default_rng(1)
    times = (np.sort(rng.integers(0, span, rows)) for _ in range(2))
    tables = [
        pa.table({"t": at, "k": key, value: np.arange(rows)})
        for at, key, value in zip(times, (keys, other), ("x", "y"), strict=True)
    ]
    return tables[0], tables[1]


PAIRS = ("x", "y", "t", "t_right", "join_time")
PAIRS_SQL = """
    select a.t // 1000000 * 1000000 as window_start, (a.t // 1000000 + 1) * 1000000 as window_end, a.k, x, y,
    a.t as t, b.t as t_right, greatest(a.t, b.t) as join_time
    from a join b on a.k = b.k and a.t // 1000000 = b.t // 1000000
"""


def _polars_pairs(left: object, right: object) -> object:
    import polars as pl  # noqa: PLC0415

    assert isinstance(left, pl.DataFrame) and isinstance(right, pl.DataFrame)
    window = (pl.col("t") // WINDOW).alias("w")
    joined = left.lazy().with_columns(window).join(right.lazy().with_columns(window), on=["w", "k"])
    return joined.with_columns(
        join_time=pl.max_horizontal("t", "t_right"),
        window_start=pl.col("w") * WINDOW,
        window_end=(pl.col("w") + 1) * WINDOW,
    ).collect()


def windows(rows: int) -> Subject:
    """One window of unique keys, every pair with all columns."""
    rng = np.random.default_rng(2)
    tables = streams(rows, rng.permutation(rows), rng.permutation(rows), WINDOW)
    return Subject(
        "a window, unique keys", *tables, lambda a, b: a.join(b, on="k", window=WINDOW), PAIRS, PAIRS_SQL,
        _polars_pairs, {"DuckDB": 3.0, "Polars": 2.0},
    )  # fmt: skip


def duplicates(rows: int) -> Subject:
    """Ten windows of keys that are there a few times."""
    rng = np.random.default_rng(3)
    keys, other = rng.integers(0, rows // 20, (2, rows))
    tables = streams(rows, keys, other, 10 * WINDOW)
    return Subject(
        "ten windows, duplicate keys", *tables, lambda a, b: a.join(b, on="k", window=WINDOW), PAIRS, PAIRS_SQL,
        _polars_pairs, {"DuckDB": 3.0, "Polars": 2.0},
    )  # fmt: skip


def _polars_asof(left: object, right: object) -> object:
    import polars as pl  # noqa: PLC0415

    assert isinstance(left, pl.DataFrame) and isinstance(right, pl.DataFrame)
    return left.join_asof(right, on="t", by="k", strategy="backward", coalesce=False, check_sortedness=False)


def nearest(rows: int) -> Subject:
    """The last row before, of a thousand keys."""
    rng = np.random.default_rng(4)
    keys, other = rng.integers(0, 1000, (2, rows))
    tables = streams(rows, keys, other, 1 << 50)
    sql = "select x, y, a.t as t, b.t as t_right, a.k from a asof left join b on a.k = b.k and a.t >= b.t"
    return Subject(
        "as-of, 1,000 keys", *tables, lambda a, b: a.join_asof(b, by="k"), ("x", "y", "t", "t_right"), sql,
        _polars_asof, {"Polars": 1.0},
    )  # fmt: skip


def intervals(rows: int) -> Subject:
    """About two partners for each row, of a thousand keys."""
    rng = np.random.default_rng(5)
    span = 1 << 40
    reach = 1000 * span // rows
    keys, other = rng.integers(0, 1000, (2, rows))
    tables = streams(rows, keys, other, span)
    sql = f"""
        select x, y, a.t as t, b.t as t_right, a.k, greatest(a.t, b.t) as join_time
        from a join b on a.k = b.k and b.t between a.t - {reach} and a.t + {reach}
    """  # noqa: S608 - a number of ours
    return Subject(
        "interval, 1,000 keys", *tables, lambda a, b: a.join(b, on="k", within=(-reach, reach)), PAIRS, sql,
        None, {"DuckDB": 10.0},
    )  # fmt: skip


def around(rows: int) -> Subject:
    """Sum, mean and maximum of about a hundred rows around each row, of a hundred keys."""
    rng = np.random.default_rng(6)
    span = 1 << 40
    reach = 100 * 100 * span // rows
    keys, other = rng.integers(0, 100, (2, rows))
    tables = streams(rows, keys, other, span)
    sql = f"""
        select x, count(y) as n, sum(y) as s, max(y) as m
        from a left join b on a.k = b.k and b.t between a.t - {reach} and a.t group by x
    """  # noqa: S608 - a number of ours
    return Subject(
        "aggregates around, 100 rows each", *tables,
        lambda a, b: a.join_rolling(b, by="k", within=(-reach, 0)).agg(n=pk.count(), s=pk.sum("y"), m=pk.max("y")),
        ("x", "n", "s", "m"), sql, None, {"DuckDB": 20.0},
    )  # fmt: skip
