"""Algorithms by name in every type of window that they can be asked for, and conditions that are searched for."""

from __future__ import annotations

from contextlib import ExitStack
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pk
from penstock.ir.interpret import interpret
from penstock.ir.samples import to_rows, to_table
from penstock.operators.joins import algorithm_pairs, large_windows, results, windows
from penstock.translate import to_ir
from penstock.types.windows import JOIN_ALGORITHMS
from tests.oracle.effort import effort
from tests.oracle.join_cases import JOIN_KINDS, KEYS
from tests.oracle.join_cases import streams as rows_of

WINDOWS = {
    "tumbling": pk.tumbling(10, offset=3),
    "with gaps": pk.sliding(6, every=10),
    "sliding": pk.sliding(10, every=4),
    "unbounded": pk.unbounded(),
    "different": (pk.tumbling(10), pk.sliding(20, every=5)),
    "different steps": (pk.sliding(7, every=4), pk.sliding(5, every=6, offset=2)),
}
APART = ("tumbling", "with gaps", "unbounded")
BANDS = {
    "less": pk.left("x") < pk.right("y"),
    "around": (pk.right("y") >= pk.left("x") - 1) & (pk.right("y") <= pk.left("x") + 1.5),
    "equal": pk.right("y") == pk.left("x"),
    "shifted": (pk.right("y") - 1 <= pk.left("x")) & (pk.right("y") + 1.5 >= pk.left("x")),
    "shifted both": (1 + pk.right("y") > pk.left("x")) & (pk.left("x") + 2 >= pk.right("y") - 0.5 + 1),
    "infinitely": (pk.right("y") + float("inf") >= pk.left("x")) & (pk.right("y") - 1 <= pk.left("x") * 2),
}


def check(query: pk.Stream, rows: dict[str, pa.Table], threads: int) -> None:
    wanted = to_table(interpret(to_ir(query.plan), {n: to_rows(t) for n, t in rows.items()}), query.schema)
    found = query.collect(rows, engine=pk.Engine(threads=threads))
    assert list(map(repr, found.to_pylist())) == list(map(repr, wanted.to_pylist()))


def drawn(data: st.DataObject, keys: str) -> tuple[dict[str, pa.Table], pk.Stream, pk.Stream]:
    rows = {
        name: data.draw(rows_of(value, keys, sorted_times=False))
        for name, value in zip("ab", "xy", strict=True)
    }
    a, b = (pk.stream(name, rows[name].schema, time="t") for name in "ab")
    return rows, a, b


@effort(25)
@given(data=st.data())
def test_an_algorithm_is_the_definition_in_every_window(data: st.DataObject) -> None:
    rows, a, b = drawn(data, data.draw(st.sampled_from(sorted(KEYS))))
    window = data.draw(st.sampled_from(sorted(WINDOWS)))
    how = data.draw(st.sampled_from(JOIN_KINDS if window in APART else JOIN_KINDS[:4]))
    where = data.draw(st.sampled_from([None, *BANDS.values()]))
    algorithm = data.draw(st.sampled_from(JOIN_ALGORITHMS))
    query = a.join(b, on="k", window=WINDOWS[window], how=how, where=where, algorithm=algorithm)
    check(query, rows, data.draw(st.sampled_from([1, 3])))


@effort(25)
@given(data=st.data())
def test_conditions_that_bound_a_column_are_searched_for(data: st.DataObject) -> None:
    rows, a, b = drawn(data, data.draw(st.sampled_from(["one", "few", "text"])))
    on = data.draw(st.sampled_from([None, "k"]))
    window, how = data.draw(st.sampled_from(sorted(WINDOWS))), data.draw(st.sampled_from(JOIN_KINDS))
    query = a.join(
        b, on=on, window=WINDOWS[window], how=how, where=BANDS[data.draw(st.sampled_from(sorted(BANDS)))]
    )
    limits = (
        (large_windows, "ROWS_JOINED_BY_PARTITION", 1),
        (windows, "ROWS_A_RUN", 0),
        (algorithm_pairs, "MANY_PAIRS", -1),
    )
    most = data.draw(st.sampled_from([1, 4, 1 << 21]))
    limits += (algorithm_pairs, "MOST_PAIRS", most), (results, "MOST_PAIRS", most)
    with ExitStack() as several:
        for module, name, limit in (*limits, (large_windows, "ROWS_WORTH_A_SORT", 0)):
            several.enter_context(patch.object(module, name, limit))
        check(query, rows, 1)


def streams() -> tuple[pk.Stream, pk.Stream]:
    schema = {"t": "int64", "k": "int64", "x": "int64"}
    return pk.stream("a", schema, time="t"), pk.stream("b", schema, time="t")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"on": "k", "window": pk.session(5)}, "a session has rows of one key"),
        ({"on": "k", "window": pk.sliding(10, every=5), "how": "semi"}, "all windows that hold a row"),
        (
            {"on": "k", "window": (pk.tumbling(5), pk.tumbling(10)), "how": "anti"},
            "all windows that hold a row",
        ),
        ({"on": "k", "within": (-5, 5)}, "joins in windows on equal keys"),
        ({"window": 10, "where": pk.left("x") > pk.right("x")}, "joins in windows on equal keys"),
    ],
)
def test_an_algorithm_that_cannot_be_used_is_refused_with_a_reason(options, said) -> None:
    a, b = streams()
    with pytest.raises(pk.UnsupportedError, match=said):
        a.join(b, algorithm="prj", **options)


def test_the_report_says_by_what_windows_were_joined() -> None:
    rows = pa.table({"t": range(40), "k": [1, 2] * 20, "x": range(40)})
    a, b = streams()
    for window, windows_ in ((10, 4), (pk.sliding(10, every=5), 9)):
        metrics = pk.Metrics()
        a.join(b, on="k", window=window, algorithm="mway").collect(a=rows, b=rows, metrics=metrics)
        (report,) = metrics.joins.values()
        assert (report.windows, report.paths) == (windows_, {"mway": windows_})
        assert report.pairs > 0 and report.throughput > 0


def test_windows_of_few_rows_are_reported_as_joined_in_lanes() -> None:
    rows = pa.table({"t": range(40), "k": [1, 2] * 20, "x": range(40)})
    a, b = streams()
    metrics = pk.Metrics()
    a.join(b, on="k", window=10).collect(a=rows, b=rows, metrics=metrics)
    (report,) = metrics.joins.values()
    assert (report.windows, report.rows, report.pairs, report.paths) == (4, 80, 200, {"partitions": 4})
