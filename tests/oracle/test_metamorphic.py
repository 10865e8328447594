"""Answers that must not change: other splits, orders, threads, keys apart, times shifted, passes off."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import penstock as pk
from tests.oracle import describe as d
from tests.oracle.approx import Approx
from tests.oracle.brute import Cells
from tests.oracle.data import plain_column
from tests.oracle.effort import effort
from tests.oracle.engines import (
    assert_answer,
    collected,
    expected_rows,
    pass_names,
    streamed,
    streamed_and_counted,
    tiny_tasks,
    without_passes,
)
from tests.oracle.queries import Case, any_queries, window_queries
from tests.oracle.strategies import Dataset, batches_of, to_array


def _expected(case: Case) -> list[Cells]:
    rows = expected_rows(case)
    assume(rows is not None)
    return rows or []


def _with_tables(case: Case, tables: dict[str, pa.Table]) -> Case:
    return replace(
        case, datasets=tuple(replace(dataset, table=tables[dataset.name]) for dataset in case.datasets)
    )


@effort(60)
@given(case=window_queries(), data=st.data())
def test_any_batch_split_gives_the_same_answer(case: Case, data: st.DataObject) -> None:
    expected = _expected(case)
    batches = {dataset.name: data.draw(batches_of(dataset.table)) for dataset in case.datasets}
    assert_answer(expected, streamed(case, batches), "streamed", d.promises_order(case.query))


@effort(50)
@given(case=any_queries(), lateness=st.integers(0, 30), data=st.data())
def test_late_rows_are_the_same_whatever_the_batches(case: Case, lateness: int, data: st.DataObject) -> None:
    """With too little patience rows are lost, but the same ones: lateness is decided row by row."""
    assume(len(case.datasets) == 1 and expected_rows(case) is not None)
    table = case.datasets[0].table
    whole = {"events": table.combine_chunks().to_batches()}
    one, counted = streamed_and_counted(case, whole, lateness)
    many, recounted = streamed_and_counted(case, {"events": data.draw(batches_of(table))}, lateness)
    assert _without_floats(one) == _without_floats(many)
    assert (counted.read, counted.late, counted.malformed) == (
        recounted.read,
        recounted.late,
        recounted.malformed,
    )
    assert counted.balanced and recounted.balanced


def _without_floats(table: pa.Table) -> list[str]:
    """List what must be bit-equal: float sums may differ by their bound, by how they were added."""
    exact = [field.name for field in table.schema if not pa.types.is_floating(field.type)]
    return _sorted_text(table.select(exact))


@effort(30)
@given(case=any_queries(), data=st.data())
def test_any_chunking_of_a_table_gives_the_same_answer(case: Case, data: st.DataObject) -> None:
    expected = _expected(case)
    tables = {
        dataset.name: pa.Table.from_batches(data.draw(batches_of(dataset.table)), dataset.table.schema)
        for dataset in case.datasets
    }
    assert_answer(expected, collected(_with_tables(case, tables)), "rechunked", d.promises_order(case.query))


@effort(40)
@given(case=any_queries(), seed=st.integers(0, 2**32))
def test_any_order_of_arrival_gives_the_same_answer(case: Case, seed: int) -> None:
    assume(not d.depends_on_order(case.query))
    expected = _expected(case)
    tables = {dataset.name: _shuffled(dataset, seed) for dataset in case.datasets}
    assert_answer(expected, collected(_with_tables(case, tables)), "permuted", d.promises_order(case.query))


def _shuffled(data: Dataset, seed: int) -> pa.Table:
    order = list(range(data.table.num_rows))
    random.Random(seed).shuffle(order)
    return data.table.combine_chunks().take(pa.array(order, pa.int64()))


@effort(40)
@given(case=any_queries(), threads=st.sampled_from([1, 2, 3]))
def test_any_number_of_threads_and_tasks_gives_the_same_answer(case: Case, threads: int) -> None:
    assert_answer(
        _expected(case),
        collected(case, engine=tiny_tasks(threads)),
        f"{threads} threads",
        d.promises_order(case.query),
    )


@effort(25)
@given(case=window_queries())
def test_the_answer_of_many_threads_is_bit_equal_between_runs(case: Case) -> None:
    _expected(case)
    first, second = (collected(case, engine=tiny_tasks(3)) for _ in range(2))
    assert first.schema.equals(second.schema)
    assert _sorted_text(first) == _sorted_text(second)


def _sorted_text(table: pa.Table) -> list[str]:
    columns = [plain_column(column).to_pylist() for column in table.columns]
    return sorted(repr(row) for row in zip(*columns, strict=True))


@effort(40)
@given(case=window_queries(distinct=False, clock=False), steps=st.integers(-40, 40))
def test_shifting_time_by_slides_shifts_the_windows(case: Case, steps: int) -> None:
    by = steps * math.lcm(*_slides(case.query))
    assume(all(_can_shift(dataset, by) for dataset in case.datasets))
    expected = [_moved(row, by) for row in _expected(case)]
    tables = {dataset.name: _shifted(dataset, by) for dataset in case.datasets}
    assert_answer(expected, collected(_with_tables(case, tables)), "shifted", d.promises_order(case.query))


def _slides(query: d.Query) -> list[int]:
    match query:
        case d.Source():
            return []
        case d.Union(left=left, right=right):
            return _slides(left) + _slides(right)
        case d.Window(every=every) | d.Attach(every=every):
            return [every, *_slides(query.input)]
        case _:
            return _slides(query.input)


def _can_shift(data: Dataset, by: int) -> bool:
    if data.time.type not in (pa.uint32(), pa.int32(), pa.date32()):
        return abs(by) < 2**50
    low, high = (1_000, 2**32 - 1_000) if data.time.type == pa.uint32() else (-(2**31) + 1_000, 2**31 - 1_000)
    moved = [t + by for t in plain_column(data.table["t"]).to_pylist() if t is not None]
    return all(low < t < high for t in moved)


def _shifted(data: Dataset, by: int) -> pa.Table:
    ticks = [None if t is None else t + by for t in plain_column(data.table["t"]).to_pylist()]
    return data.table.set_column(0, "t", to_array(ticks, data.time.type))


def _moved(row: Cells, by: int) -> Cells:
    bounds = {name: row[name] + by for name in ("window_start", "window_end")}  # type: ignore[operator]
    return {**row, **bounds}


@effort(40)
@given(case=window_queries(distinct=False, tail=False), modulus=st.integers(2, 3))
def test_the_union_over_parts_of_the_keys_is_the_whole(case: Case, modulus: int) -> None:
    assume(isinstance(case.query, d.Window))
    assert isinstance(case.query, d.Window)
    key = next((name for name in case.query.by if _is_source_key(case, name)), None)
    assume(key is not None)
    expected = _expected(case)
    parts = []
    for part in range(modulus):
        tables = {dataset.name: _part(dataset.table, str(key), part, modulus) for dataset in case.datasets}
        parts.append(collected(_with_tables(case, tables)))
    whole = pa.concat_tables(parts).sort_by([("window_end", "ascending"), ("window_start", "ascending")])
    assert_answer(expected, whole, "parts", d.promises_order(case.query))


def _is_source_key(case: Case, name: str) -> bool:
    """Tell whether a key comes unchanged from the source: no verb below defines a column of its name."""
    query = case.query
    while not isinstance(query, d.Source | d.Union):
        if isinstance(query, d.Select | d.With) and name in dict(query.fields):
            return False
        query = query.input
    return name in case.datasets[0].table.column_names


def _part(table: pa.Table, key: str, part: int, modulus: int) -> pa.Table:
    """Keep the rows whose key hashes to `part`; equal keys, NaN and both zeros go together."""
    cells = plain_column(table[key]).to_pylist()
    hashes = [0 if cell is None or cell != cell else hash(cell) for cell in cells]
    return table.filter(pa.array([hash_ % modulus == part for hash_ in hashes], pa.bool_()))


@pytest.mark.parametrize("name", pass_names())
@effort(12)
@given(case=any_queries())
def test_a_pass_turned_off_changes_no_answer(case: Case, name: str) -> None:
    assert_answer(
        _expected(case), without_passes(case, frozenset({name})), f"{name} off", d.promises_order(case.query)
    )


@effort(25)
@given(case=any_queries())
def test_all_passes_turned_off_change_no_answer(case: Case) -> None:
    assert_answer(
        _expected(case),
        without_passes(case, frozenset(pass_names())),
        "passes off",
        d.promises_order(case.query),
    )


@effort(15)
@given(case=any_queries())
def test_the_loop_interpreter_gives_the_answer_of_native_code(case: Case) -> None:
    assume(sum(dataset.table.num_rows for dataset in case.datasets) <= 12)
    expected = _expected(case)
    assert_answer(
        expected,
        collected(case, engine=pk.Engine(backend="interpret")),
        "loop interpreter",
        d.promises_order(case.query),
    )


@effort(25)
@given(case=window_queries(distinct=False, tail=False))
def test_repeating_every_row_doubles_counts_and_keeps_extremes(case: Case) -> None:
    assume(isinstance(case.query, d.Window) and len(case.datasets) == 1)
    assert isinstance(case.query, d.Window)
    fields = tuple((name, node) for name, node in case.query.fields if isinstance(node, d.Agg))
    assume(fields and all(node.function in ("count", "min", "max") for _, node in fields))
    query = replace(case.query, fields=fields)
    single = replace(case, query=query)
    expected = [_doubled(row, fields) for row in _expected(single)]
    twice = {dataset.name: pa.concat_tables([dataset.table, dataset.table]) for dataset in case.datasets}
    assert_answer(expected, collected(_with_tables(single, twice)), "doubled", d.promises_order(case.query))


def _doubled(row: Cells, fields: d.Fields) -> Cells:
    counts = {name for name, node in fields if isinstance(node, d.Agg) and node.function == "count"}
    return {name: cell * 2 if name in counts else cell for name, cell in row.items()}  # type: ignore[operator]


def test_a_wrong_answer_is_refused() -> None:
    """Guard against an oracle that compares nothing: a wrong answer must be refused."""
    expected: list[Cells] = [{"window_start": 0, "window_end": 1, "x": Approx(1.0, 1e-12)}]
    good = pa.table({"window_start": [0], "window_end": [1], "x": [1.0]})
    assert_answer(expected, good, "good")
    for bad in (
        good.slice(0, 0),
        pa.concat_tables([good, good]),
        good.set_column(2, "x", pc.add(good["x"], 1e-9)),
    ):
        with pytest.raises(AssertionError):
            assert_answer(expected, bad, "bad")
