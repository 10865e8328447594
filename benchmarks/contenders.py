"""Put Penstock, the C++ reference and the peers behind one call each, for one ysb-keyed table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import penstock as pk
from benchmarks.measure import Contender
from benchmarks.peers import failing, peer_contenders
from benchmarks.reference import NoCompilerError, Reference, load_reference
from benchmarks.workloads import EVENT_TYPES, VIEW, EventType, YsbKeyed

PENSTOCK_GROUP = "penstock"
CPP_GROUP = "c++"
READING_GROUP = "reading"
ALL_PEERS = ("polars", "duckdb", "pandas")


@dataclass(frozen=True, slots=True)
class Field:
    """Who takes part: the compiled reference (or why there is none), thread counts, peers."""

    reference: Reference | NoCompilerError
    threads: tuple[int, ...] = (1, 2)
    peers: tuple[str, ...] = ALL_PEERS


def open_field(threads: Sequence[int], peers: Sequence[str]) -> Field:
    """Compile the reference if a compiler is there."""
    reference: Reference | NoCompilerError
    try:
        reference = load_reference()
    except NoCompilerError as error:
        reference = error
    return Field(reference, tuple(threads), tuple(peers))


def wanted_event(kind: EventType) -> str | int:
    """The literal that keeps views, for how the event type is stored."""
    return VIEW if kind is EventType.INT else EVENT_TYPES[VIEW]


def penstock_query(table: pa.Table, wanted: str | int) -> Any:
    """Write ysb-keyed as a user would."""
    return (
        pk.from_arrow(table, time="ts")
        .filter(pk.col("event_type") == wanted)
        .window(pk.tumbling("10s"), by="campaign_id")
        .agg(total=pk.sum("value"))
    )


def penstock_contender(
    table: pa.Table, wanted: str | int, threads: int, name: str | None = None
) -> Contender:
    """Penstock's whole `collect()`, of a query that is written beforehand, as it is for the peers."""
    query, engine = penstock_query(table, wanted), pk.Engine(threads=threads)

    def run() -> Any:
        return query.collect(engine=engine)

    label = name or f"Penstock {plural(threads)}"
    return Contender(label, run, threads=threads, group=PENSTOCK_GROUP)


def cpp_contender(
    reference: Reference | NoCompilerError, table: pa.Table, keys: int, threads: int
) -> Contender:
    """The C++ reference, its output table included."""
    name = f"C++ {plural(threads)}"
    if isinstance(reference, NoCompilerError):
        return Contender(name, failing(reference), threads=threads, group=CPP_GROUP)
    return Contender(
        name, lambda: reference.ysb_keyed(table, keys, threads), threads=threads, group=CPP_GROUP
    )


def reading_contender(reference: Reference, table: pa.Table, threads: int) -> Contender:
    """C++ that reads the same columns and does nothing with them: what no query can be faster than."""
    return Contender(
        f"C++ reading alone, {plural(threads)}",
        lambda: reference.read_columns(table, threads),
        lambda _: pa.table({}),
        threads,
        READING_GROUP,
        READING_GROUP,
    )


def plural(threads: int) -> str:
    """Say a thread count."""
    return f"{threads} thread" if threads == 1 else f"{threads} threads"


def ysb_contenders(table: pa.Table, spec: YsbKeyed, field: Field) -> list[Contender]:
    """Everyone who answers ysb-keyed over this table; the reference is first, so its answer counts."""
    wanted = wanted_event(spec.event_type)
    made: list[Contender] = []
    if spec.event_type is EventType.INT:
        made += [cpp_contender(field.reference, table, spec.keys, n) for n in field.threads]
        if isinstance(field.reference, Reference):
            made += [reading_contender(field.reference, table, n) for n in field.threads]
    made += [penstock_contender(table, wanted, n) for n in field.threads]
    return made + peer_contenders(table, max(field.threads), wanted, list(field.peers))
