"""The ways to run one case: compiled in any configuration, and interpreted without any pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

import penstock as pk
from penstock.api.execute import read
from penstock.compile import compile_plan
from penstock.ir.interpret import interpret
from penstock.ir.samples import to_rows
from penstock.passes.pipeline import PASSES, optimise
from penstock.plan.schema import sources_of
from penstock.translate import to_ir
from tests.oracle import brute
from tests.oracle.brute import Cells
from tests.oracle.build import build
from tests.oracle.compare import assert_same_rows, assert_windows_in_order
from tests.oracle.data import Row, rows_of
from tests.oracle.queries import Case

PATIENCE = 10**8  # ticks: later than any row of a generated table


def expected_rows(case: Case) -> list[Cells] | None:
    """Compute the answer in plain Python; None if some sum does not fit 64 bits."""
    try:
        return brute.run(case.query, case.tables).rows
    except brute.Overflow:
        return None


def collected(case: Case, **options: Any) -> pa.Table:
    """Run compiled, over the tables as they are chunked."""
    return build(case.query, case.datasets).collect(**options)


def interpreted(case: Case, off: frozenset[str] | None = None) -> list[Row]:
    """Run in the interpreter of the time-centric IR: un-optimised, or with all passes but those off."""
    program = to_ir(build(case.query, case.datasets).plan)
    inputs = {name: to_rows(table) for name, table in case.tables.items()}
    return interpret(program if off is None else optimise(program, off), inputs)


def streamed(
    case: Case, batches: Mapping[str, Sequence[pa.RecordBatch]], engine: pk.Engine | None = None
) -> pa.Table:
    """Run incrementally over batches, with lateness enough for every row."""
    return streamed_and_counted(case, batches, PATIENCE, engine)[0]


def streamed_and_counted(
    case: Case,
    batches: Mapping[str, Sequence[pa.RecordBatch]],
    lateness: int,
    engine: pk.Engine | None = None,
) -> tuple[pa.Table, pk.Metrics]:
    """Run incrementally with a lateness in ticks."""
    query = build(case.query, case.datasets, bound=False, lateness=lateness)
    run = query.run({name: iter(batch) for name, batch in batches.items()}, engine=engine)
    return pa.Table.from_batches(list(run), query.schema), run.metrics


def pass_names() -> list[str]:
    """Name every optimiser pass once."""
    return list(dict.fromkeys(name for name, _ in PASSES))


def without_passes(case: Case, off: frozenset[str]) -> pa.Table:
    """Run compiled with some passes turned off."""
    query = build(case.query, case.datasets)
    compiled = compile_plan(query.plan, off=off)
    session = compiled.open(pk.Engine(), bounded=True)
    batches: list[pa.RecordBatch] = []
    for source in sources_of(query.plan):
        for batch in read(
            source, query.data[source.name], compiled.columns[source.name], compiled, session.metrics
        ):
            batches += session.push(source.name, batch)
    return pa.Table.from_batches([*batches, *session.finish()], schema=query.schema)


def tiny_tasks(threads: int) -> Any:
    return pk.Engine(threads=threads, task_bytes=64)


def assert_answer(expected: Sequence[Cells], table: pa.Table, what: str, ordered: bool = True) -> None:
    """Check that the table is sound Arrow, its rows, and the order of windows where it is promised."""
    table.validate(full=True)
    assert_same_rows(expected, rows_of(table), what)
    if ordered and "window_end" in table.column_names:
        assert_windows_in_order(table)
