"""Eager algorithms in `run` and `open`: pairs as rows arrive, each once, whatever the interleaving, saved or not."""

from __future__ import annotations

from collections import Counter
from functools import partial
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.algorithms.joins.eager import Eager, ProgressiveMerge
from penstock.ir.interpret import interpret
from penstock.ir.samples import to_rows, to_table
from penstock.operators.joins.build_algorithms import EAGER_BUILDERS
from penstock.translate import to_ir
from tests.oracle.effort import effort
from tests.oracle.join_cases import JOIN_KINDS, KEYS
from tests.oracle.join_cases import streams as rows_of

# Runs of pmj are long; here they are of a few rows, so that pairs within and across runs occur.
SHORT_RUNS = {
    name: lambda kernels, name=name: Eager(
        name, kernels, partial(ProgressiveMerge, step=4), biclique=name.endswith("jb")
    )
    for name in ("pmj_jm", "pmj_jb")
}
WINDOWS = {"tumbling": pk.tumbling(10, offset=3), "with gaps": pk.sliding(6, every=10)}


def shown(rows: list[dict]) -> Counter:
    return Counter(map(repr, rows))


def query_of(rows: dict[str, pa.Table], lateness: int = 0, **options) -> pk.Stream:
    a, b = (pk.stream(name, rows[name].schema, time="t", lateness=lateness) for name in "ab")
    return a.join(b, on="k", **options)


@effort(40)
@given(data=st.data())
def test_pairs_that_arrive_are_the_pairs_there_are(data: st.DataObject) -> None:
    keys = data.draw(st.sampled_from(sorted(KEYS)))
    rows = {
        name: data.draw(rows_of(value, keys, sorted_times=True))
        for name, value in zip("ab", "xy", strict=True)
    }
    options: dict = {"window": WINDOWS[data.draw(st.sampled_from(sorted(WINDOWS)))]}
    options["how"] = data.draw(st.sampled_from(JOIN_KINDS))
    if data.draw(st.booleans()):
        options["where"] = pk.left("x") + 1 != pk.right("y")
    chosen = data.draw(st.sampled_from([*EAGER_BUILDERS, "latency", "progress"]))
    options |= {"algorithm": chosen} if chosen in EAGER_BUILDERS else {"optimise": chosen}
    query = query_of(rows, data.draw(st.sampled_from([0, 3, 100])), **options)
    wanted = to_table(interpret(to_ir(query.plan), {n: to_rows(t) for n, t in rows.items()}), query.schema)
    waiting = {
        name: table.to_batches(max_chunksize=data.draw(st.integers(1, 9))) for name, table in rows.items()
    }
    with patch.dict(EAGER_BUILDERS, SHORT_RUNS):
        live, made = query.open(), []
        while any(waiting.values()):
            name = data.draw(st.sampled_from([name for name, batches in waiting.items() if batches]))
            made += live.push({name: waiting[name].pop(0)})
            if data.draw(st.integers(0, 3)) == 0:
                live = query.open(state=live.state())
        made += live.finish()
    assert shown(pa.Table.from_batches(made, query.schema).to_pylist()) == shown(wanted.to_pylist())
    assert live.metrics.late == 0 and live.metrics.balanced


def batch(name: str, *rows: tuple[int, int, int]) -> dict[str, pa.RecordBatch]:
    value = "x" if name == "a" else "y"
    return {
        name: pa.RecordBatch.from_pylist([dict(zip(("t", "k", value), row, strict=True)) for row in rows])
    }


EMPTY = {"a": pa.table({"t": [0], "k": [0], "x": [0]}), "b": pa.table({"t": [0], "k": [0], "y": [0]})}


@pytest.mark.parametrize("algorithm", ["shj_jm", "shj_jb"])
def test_a_pair_is_given_with_its_later_row_while_the_window_is_open(algorithm) -> None:
    live = query_of(EMPTY, window=100, algorithm=algorithm).open()
    assert live.push(batch("a", (1, 7, 1), (2, 8, 2))) == []
    (first,) = live.push(batch("b", (3, 7, 5)))
    assert first.select(["x", "y", "join_time"]).to_pylist() == [{"x": 1, "y": 5, "join_time": 3}]
    (second,) = live.push(batch("a", (4, 7, 3)))
    assert second.column("x").to_pylist() == [3]
    assert live.finish() == []
    (report,) = live.metrics.joins.values()
    assert (report.windows, report.rows, report.pairs, report.paths) == (1, 4, 2, {algorithm: 1})
    assert report.latency() > 0 and report.progress[-1][1] == 2 and algorithm in report.show()


def test_a_lazy_algorithm_waits() -> None:
    live = query_of(EMPTY, window=100, algorithm="npj").open()
    assert live.push(batch("a", (1, 7, 1))) == [] and live.push(batch("b", (3, 7, 5))) == []
    assert sum(table.num_rows for table in live.finish()) == 1


def test_what_is_kept_is_bounded_by_the_watermark() -> None:
    live = query_of(EMPTY, window=10, algorithm="shj_jm").open()
    sizes = []
    for t in range(0, 1000, 5):
        live.push(batch("a", (t, t % 3, 1)))
        live.push(batch("b", (t, t % 3, 2)))
        sizes.append(sum(kept.table.num_rows for kept in live._session.save().values()))
    assert max(sizes[10:]) <= max(sizes[:10]) + 1


def test_results_go_on_into_windows_as_they_do_from_lazy_joins() -> None:
    rows = {
        "a": pa.table({"t": [1, 5, 12, 17, 31], "k": [1, 2, 1, 1, 2], "x": [1, 2, 3, 4, 5]}),
        "b": pa.table({"t": [3, 4, 11, 18, 33], "k": [1, 1, 1, 2, 2], "y": [5, 6, 7, 8, 9]}),
    }
    answers = []
    for algorithm in ("shj_jm", "npj"):
        query = (
            query_of(rows, window=10, algorithm=algorithm).window(20, by="k").agg(n=pk.count(), s=pk.sum("y"))
        )
        live = query.open()
        made = [
            value for n in range(5) for name in "ab" for value in live.push({name: rows[name].slice(n, 1)})
        ]
        made += live.finish()
        answers.append(pa.Table.from_batches(made, query.schema).to_pylist())
    assert answers[0] == answers[1] != []
