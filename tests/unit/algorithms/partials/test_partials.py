"""What panes remember is as little as can be, and gives the results that the interpreter defines."""

from __future__ import annotations

import math
from collections.abc import Callable
from math import inf, nan
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import penstock as pk
from penstock.algorithms.partials import Partial, collapsing, partials_of
from penstock.analysis.panes import in_panes
from penstock.expr import nodes as ex
from penstock.expr.nodes import Column
from penstock.ir.interpret import interpret
from penstock.ir.nodes import Reduce, Reduction
from penstock.ir.samples import to_rows

SCHEMA = pa.schema(
    {
        "t": pa.int64(),
        "k": pa.int64(),
        "f": pa.float64(),
        "g": pa.float32(),
        "i": pa.int64(),
        "u": pa.uint64(),
        "b": pa.bool_(),
        "s": pa.string(),
    }
)


# --- what is shared -----------------------------------------------------------------------------------------

F, G = Column("f"), Column("g")
POSITIVE = ex.Call("gt", (F, ex.Literal(0.0, pa.float64())))


def kinds(*reductions: Reduction, nulls: bool = True) -> list[str]:
    """Name the partials some reductions need, without the presence of rows."""
    found = partials_of(reductions, lambda expr: nulls)
    return [partial.kind for partial in found if partial != Partial("present")]


@pytest.mark.parametrize(
    ("reductions", "expected"),
    [
        ([Reduction("var", (F,)), Reduction("std", (F,), None, (("ddof", 0),))], ["moments2"]),
        ([Reduction("skew", (F,)), Reduction("var", (F,))], ["moments3"]),
        ([Reduction("var", (F,)), Reduction("skew", (F,)), Reduction("kurtosis", (F,))], ["moments4"]),
        ([Reduction("var", (F,)), Reduction("kurtosis", (G,))], ["moments2", "moments4"]),
        ([Reduction("var", (F,)), Reduction("kurtosis", (F,), POSITIVE)], ["moments2", "moments4"]),
        ([Reduction("corr", (F, G)), Reduction("cov", (F, G), None, (("ddof", 0),))], ["comoments"]),
        ([Reduction("any", (Column("b"),)), Reduction("max", (Column("b"),))], ["greatest", "present"]),
        ([Reduction("product", (F,)), Reduction("sum", (F,))], ["product", "present", "sum"]),
        ([Reduction("first", (F,)), Reduction("first", (F,), None, (("ignore_nulls", True),))],
         ["first", "first_valid"]),
        ([Reduction("min_by", (F, G)), Reduction("max_by", (F, G))], ["least_by", "greatest_by"]),
    ],
    ids=lambda pair: " and ".join(r.function for r in pair) if isinstance(pair[0], Reduction) else "",
)  # fmt: skip
def test_reductions_share_the_states_that_are_the_same(
    reductions: list[Reduction], expected: list[str]
) -> None:
    assert kinds(*reductions) == expected


@pytest.mark.parametrize(
    ("reductions", "pairs"),
    [
        ([Reduction("min", (F,))], [(0, 2)]),
        # both columns may be null in the same row: their flags are compared with the presence of rows, not only with each other
        ([Reduction("min", (F,)), Reduction("min", (G,))], [(0, 2), (0, 4)]),
        ([Reduction("count", ()), Reduction("mean", (F,))], [(0, 2)]),
        ([Reduction("mean", (F,)), Reduction("mean", (G,))], [(0, 2), (4, 2), (0, 4), (2, 4)]),
        ([Reduction("var", (F,))], []),
    ],
    ids=["a flag", "two flags", "counts", "two counts", "no flag"],
)
def test_null_flags_are_dropped_only_where_states_agree_with_the_presence_of_rows(
    reductions: list[Reduction], pairs: list[tuple[int, int]]
) -> None:
    old = partials_of(reductions, lambda expr: True)
    assert collapsing(old, lambda expr: False) == pairs


@pytest.mark.parametrize("function", ["var", "kurtosis", "corr", "min_by", "first", "last"])
def test_states_that_know_whether_they_hold_a_value_look_the_same_with_nulls_and_without(
    function: str,
) -> None:
    args = (F, G) if function in ("corr", "min_by") else (F,)
    with_nulls, without = (kinds(Reduction(function, args), nulls=nulls) for nulls in (True, False))
    assert with_nulls == without and len(without) == 1


def test_an_aggregate_that_needs_all_rows_is_refused_with_a_sentence() -> None:
    with pytest.raises(pk.UnsupportedError, match="median cannot be computed from parts of a window"):
        kinds(Reduction("median", (F,)))


# --- what comes out -----------------------------------------------------------------------------------------


def _numbers(x: str) -> dict[str, pk.Expr]:
    return {
        f"var_{x}": pk.var(x),
        f"std_{x}": pk.std(x, ddof=0),
        f"skew_{x}": pk.skew(x),
        f"skewed_{x}": pk.skew(x, bias=False),
        f"kurtosis_{x}": pk.kurtosis(x),
        f"peaked_{x}": pk.kurtosis(x, fisher=False, bias=False),
    }


def _choices(x: str) -> dict[str, pk.Expr]:
    return {
        f"first_{x}": pk.first(x),
        f"last_{x}": pk.last(x),
        f"earliest_{x}": pk.first(x, ignore_nulls=True),
        f"latest_{x}": pk.last(x, ignore_nulls=True),
        f"min_{x}_by_f": pk.min_by(x, "f"),
        f"max_{x}_by_i": pk.max_by(x, "i"),
    }


EVENTS = pk.stream("events", SCHEMA, time="t")
IS_BIG = pk.col("f") > 0
QUERIES: dict[str, pk.Stream] = {
    "moments of floats": EVENTS.window(10, by="k").agg(**_numbers("f"), mean=pk.mean("f")),
    "moments of integers": EVENTS.window(10, every=4).agg(**_numbers("i"), n=pk.count("i")),
    "moments of unsigned": EVENTS.window(10, every=4, by="k").agg(**_numbers("u")),
    "moments of booleans": EVENTS.window(10).agg(**_numbers("b"), any=pk.any("b"), all=pk.all("b")),
    "products": EVENTS.window(10, every=4, by="k").agg(**{f"p_{x}": pk.product(x) for x in "fgiub"}),
    "pairs": EVENTS.window(10, by="k").agg(
        corr=pk.corr("f", "g"), cov=pk.cov("f", "i"), all=pk.cov("i", "u", ddof=0), mixed=pk.corr("i", "b")
    ),
    "choices of floats": EVENTS.window(10, every=4, by="k").agg(**_choices("f")),
    "choices of booleans": EVENTS.window(10).agg(**_choices("b")),
    "choices of times": EVENTS.filter(pk.col("k") > 0).window(10, by="k").agg(**_choices("t")),
    "where": EVENTS.window(10, every=4, by="k").agg(
        var=pk.var("i", where=IS_BIG),
        product=pk.product("g", where=IS_BIG),
        first=pk.first("i", where=IS_BIG),
        best=pk.max_by("i", "g", where=IS_BIG),
        any=pk.any("b", where=IS_BIG),
        kurtosis=pk.kurtosis("i"),
    ),
}  # fmt: skip

VALUES = {
    "t": st.integers(0, 24),
    "k": st.sampled_from([0, 1, 2, None]),
    "f": st.sampled_from([0.0, -0.0, 0.1, 1.5, -2.0, 1e9, 1e9 + 0.25, nan, inf, -inf, None]),
    "g": st.sampled_from([0.5, -1.25, 3.0, nan, None]),
    "i": st.sampled_from([0, 1, -1, -3, 7, 2**31, 2**63 - 1, -(2**63), None]),
    "u": st.sampled_from([0, 1, 2, 5, 2**63, 2**64 - 1, None]),
    "b": st.sampled_from([True, False, None]),
    "s": st.just(None),
}
ROWS = st.lists(st.fixed_dictionaries(VALUES), min_size=1, max_size=14)
# Mostly no nulls and nothing odd, so that sums of powers say something about ordinary data too.
PLAIN = st.lists(
    st.fixed_dictionaries(
        VALUES
        | {"f": st.sampled_from([0.1, 1.5, -2.0, 3.25]), "i": st.integers(-9, 9), "u": st.integers(0, 5)}
    ),
    min_size=4,
    max_size=14,
)


def table_of(rows: list[dict[str, Any]], cut: int = 0) -> pa.Table:
    """Two batches, so that nulls may come after panes have been laid out without them."""
    whole = pa.Table.from_pylist(rows, SCHEMA)
    return pa.concat_tables([whole.slice(0, cut), whole.slice(cut)])


def answer(run: Callable[[], Any]) -> Any:
    """Run; an overflow is an answer too."""
    try:
        return run()
    except pk.OverflowError:
        return "overflow"


def defined(query: pk.Stream, table: pa.Table) -> Any:
    return answer(lambda: interpret(query.compiled().raw, {"events": to_rows(table)}))


def check(name: str, rows: list[dict[str, Any]], cut: int, engine: pk.Engine) -> None:
    query, table = QUERIES[name], table_of(rows, cut)
    expected = defined(query, table)
    found = answer(lambda: to_rows(query.collect(events=table, engine=engine)))
    if expected == "overflow" or found == "overflow":
        assert found == expected
        return
    assert len(found) == len(expected)
    for own, other in zip(_sorted(found), _sorted(expected), strict=True):
        assert own.keys() == other.keys()
        assert all(same(own[column], other[column]) for column in own), (own, other)


def _sorted(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["window_end"], repr(row.get("k"))))


def same(a: Any, b: Any) -> bool:
    if not isinstance(a, float) or not isinstance(b, float):
        return bool(a == b) and type(a) is type(b)
    return (math.isnan(a) and math.isnan(b)) or a == pytest.approx(b, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", QUERIES)
def test_the_queries_of_this_file_run_in_panes(name: str) -> None:
    program = QUERIES[name].compiled().program
    body = program[program.output].body
    assert isinstance(body, Reduce) and in_panes(body, program)


@pytest.mark.parametrize("name", QUERIES)
@settings(max_examples=20)
@given(rows=ROWS | PLAIN, cut=st.integers(0, 14))
def test_panes_give_what_the_interpreter_defines(name: str, rows: list[dict[str, Any]], cut: int) -> None:
    check(name, rows, cut, pk.Engine(threads=1))


@pytest.mark.parametrize("name", QUERIES)
@settings(max_examples=8)
@given(rows=ROWS | PLAIN, cut=st.integers(0, 14))
def test_threads_with_tasks_of_a_row_each_change_nothing(
    name: str, rows: list[dict[str, Any]], cut: int
) -> None:
    check(name, rows, cut, pk.Engine(threads=2, task_bytes=1))


@pytest.mark.parametrize("name", QUERIES)
@settings(max_examples=3)
@given(rows=ROWS | PLAIN)
def test_kernels_that_assume_nothing_and_kernels_in_plain_python_change_nothing(
    name: str, rows: list[dict[str, Any]]
) -> None:
    check(name, rows, 0, pk.Engine(threads=1, adaptive=False))
    check(name, rows, 0, pk.Engine(threads=1, backend="interpret"))


LIMITS = [
    ("i", [2**63 - 1, -1], -(2**63 - 1)),
    ("i", [-(2**63), 1], -(2**63)),
    ("i", [-(2**62), 2], -(2**63)),
    ("i", [2**62, 2], "overflow"),
    ("i", [-(2**63), -1], "overflow"),
    ("i", [2**62, 2**62, 2**62, 0], 0),
    ("i", [2**62, 2**62, 2**62, None], "overflow"),
    ("u", [2**63, 1], 2**63),
    ("u", [2**32, 2**31, 2], "overflow"),
    ("u", [2**64 - 1, 2**64 - 1, 0], 0),
    ("f", [1e200, 1e200, 1e-200, 1e-200], 1.0),
    ("f", [1e-200, 1e-200], 0.0),
    ("f", [2.0**-537, 2.0**-537], 2.0**-1074),
    ("f", [1e200, -1e200], -inf),
    ("f", [inf, 0.0], nan),
    ("f", [None, None], None),
]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("column", "values", "expected"), LIMITS)
def test_a_product_fits_or_is_an_error_whatever_happens_on_the_way(
    column: str, values: list[Any], expected: Any, threads: int
) -> None:
    rows = [{**dict.fromkeys(SCHEMA.names), "t": 0, column: value} for value in values]
    query = EVENTS.window(10).agg(p=pk.product(column))
    engine = pk.Engine(threads=threads, task_bytes=1)
    found = answer(lambda: query.collect(events=table_of(rows), engine=engine)["p"].to_pylist()[0])
    assert same(found, expected)


@example(first=[0, 1], second=[2, 3])
@example(first=[3, 0], second=[2, 1])
@given(first=st.permutations(range(4)), second=st.permutations(range(4)))
@settings(max_examples=10)
def test_first_and_last_follow_time_then_arrival_however_late_a_row_comes(
    first: list[int], second: list[int]
) -> None:
    """Batches arrive one by one, rows within the lateness; equal times are told apart by their position."""
    rows = [{**dict.fromkeys(SCHEMA.names), "t": t, "i": n} for n, t in enumerate([*first, *second])]
    late = pk.stream("late", SCHEMA, time="t", lateness=10)
    query = late.window(2).agg(first=pk.first("i"), last=pk.last("i"))
    batches = table_of(rows, len(first)).to_batches()
    found = pa.Table.from_batches(list(query.run(batches)), query.schema)
    assert to_rows(found) == interpret(query.compiled().raw, {"late": rows})


def test_a_sum_that_leaves_64_bits_widens_beside_the_other_states() -> None:
    rows = [{**dict.fromkeys(SCHEMA.names), "t": t, "k": 1, "i": 2**63 - 1, "f": float(t)} for t in range(4)]
    rows += [{**rows[0], "t": 5, "i": -(2**63) + 1}] * 4
    query = EVENTS.window(10, by="k").agg(
        total=pk.sum("i"), var=pk.var("f"), last=pk.last("f"), best=pk.max_by("i", "f"), p=pk.product("f")
    )
    (found,) = to_rows(query.collect(events=table_of(rows), engine=pk.Engine(threads=1)))
    (expected,) = defined(query, table_of(rows))
    assert all(same(found[name], expected[name]) for name in expected)
