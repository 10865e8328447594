"""Plans and expressions are graphs: work grows with their distinct nodes, whatever they would be as trees."""

from __future__ import annotations

import copy
import functools
import operator
import pickle
import sys
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import penstock as pk
from penstock.analysis.predicates import scan_predicates
from penstock.expr import nodes as ex
from penstock.expr.interning import interned
from penstock.expr.show import show
from penstock.loop.nodes import Block, For, If, While
from penstock.operators.rows.kernels import RowsKernelSpec, build_rows
from penstock.physical.choose_strategy import possible
from penstock.plan.codec import decode, encode
from penstock.plan.nodes import ordered
from penstock.sources.value_ranges import may_pass
from penstock.types.time import Time

ROWS = {"t": [0, 1, 2, 3, 11, 12], "k": [1, 2, 1, 2, 1, 2], "v": [4, 5, 6, 7, 8, 9]}


def events() -> pk.Stream:
    return pk.from_arrow(pa.table(ROWS), time="t")


def calls(work: Callable[[], object]) -> int:
    """Count the Python functions that run; the count does not depend on the machine or its load."""
    count = 0

    def counted(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(counted)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


# --- shapes whose trees have 2ⁿ nodes ------------------------------------------------------------------------


def doubled(times: int, combine: Callable[[Any, Any], Any], first: Any) -> Any:
    return functools.reduce(lambda shared, _: combine(shared, shared), range(times), first)


def nested(times: int) -> pk.Expr:
    return functools.reduce(
        lambda e, i: pk.when(e > i).then(e + 1).otherwise(e - 1), range(times), pk.col("v").cast("int64")
    )


def in_sql(times: int) -> pk.Stream:
    parts = ["a0 as (select t, k, v from e)"]
    parts += [
        f"a{i} as (select t, k, v from a{i - 1} union all select t, k, v from a{i - 1})"
        for i in range(1, times + 1)
    ]
    return pk.sql(f"with {', '.join(parts)} select * from a{times}", e=events())


def filtered(times: int) -> pk.Stream:
    return functools.reduce(
        lambda s, i: s.filter(pk.col("v") > i).union(s.filter(pk.col("v") > -i)), range(times), events()
    )


SHAPES: dict[str, Callable[[int], pk.Stream]] = {
    "sum": lambda n: events().select(x=doubled(n, operator.add, pk.col("v").cast("float64"))),
    "product": lambda n: events().select(x=doubled(n, operator.mul, pk.col("v").cast("float64"))),
    "predicate": lambda n: events().filter(doubled(n, lambda a, b: a & (b | a), pk.col("v") > 5)),
    "choice": lambda n: events().select(x=nested(n)),
    "argument": lambda n: events().window(10).agg(x=pk.sum(doubled(n, operator.add, pk.col("v")))),
    "of aggregates": lambda n: events().window(10).agg(x=doubled(n, operator.add, pk.mean("v"))),
    "look-back": lambda n: events().rolling(5).agg(x=pk.max(doubled(n, operator.add, pk.col("v")))),
    "text": lambda n: events().select(x=doubled(n, operator.add, pk.col("v")).cast("string")),
    "having": lambda n: (
        events().window(10).agg(v=pk.sum("v")).filter(doubled(n, operator.or_, pk.col("v") > 5))
    ),
    "union": lambda n: doubled(n, lambda a, b: a.union(b), events()),
    "union, counted": lambda n: doubled(n, lambda a, b: a.union(b), events()).window(10).agg(n=pk.count()),
    "filtered unions": filtered,
    "SQL": in_sql,
    "as-of joins": lambda n: doubled(n, lambda a, b: a.join_asof(b, by="k").select("t", "k", "v"), events()),
    "signal": lambda n: doubled(n, operator.add, events().signal("v", by="k")).to_stream(),
}  # fmt: skip


def everything_planned(query: pk.Stream) -> None:
    """Compile a query and describe it at every stage; run nothing."""
    text, functions = encode(query.plan)
    assert decode(text, functions) is query.plan
    compiled = query.compiled()
    for stage in (None, "plan", "ir", "passes", "physical", "loop"):
        compiled.explain(stage)
    assert compiled.signature
    scan_predicates(compiled.program)
    possible(compiled.program)


@pytest.mark.parametrize("shape", SHAPES)
def test_planning_takes_steps_in_proportion_to_distinct_nodes(shape: str) -> None:
    everything_planned(SHAPES[shape](3))  # loads modules
    few, many = (calls(lambda n=n: everything_planned(SHAPES[shape](n))) for n in (8, 24))
    assert many < 6 * few  # 3 for linear growth; a tree would grow 65,536-fold


@pytest.mark.parametrize("shape", [name for name in SHAPES if name not in ("union", "SQL", "as-of joins")])
def test_a_graph_gives_the_result_of_its_tree(shape: str) -> None:
    query = SHAPES[shape](4)
    found, expected = query.collect(), query.collect(engine=pk.Engine(backend="interpret"))
    assert found.sort_by([(name, "ascending") for name in found.schema.names]).equals(
        expected.sort_by([(name, "ascending") for name in expected.schema.names])
    )


def test_values_of_doubled_expressions() -> None:
    assert SHAPES["sum"](30).collect()["x"].to_pylist() == [v * 2.0**30 for v in ROWS["v"]]
    assert SHAPES["choice"](20).collect()["x"].to_pylist() == [_chosen(v, 20) for v in ROWS["v"]]
    assert SHAPES["predicate"](30).collect()["v"].to_pylist() == [6, 7, 8, 9]
    assert SHAPES["union, counted"](10).collect()["n"].to_pylist() == [4 * 1024, 2 * 1024]


def _chosen(value: int, times: int) -> int:
    return functools.reduce(lambda v, i: v + 1 if v > i else v - 1, range(times), value)


# --- long chains ----------------------------------------------------------------------------------------------

CHAINS: dict[str, tuple[Callable[[int], pk.Stream], Callable[[int], list[int]]]] = {
    "filter": (
        lambda n: functools.reduce(lambda s, i: s.filter(pk.col("v") != i + 8), range(n), events()),
        lambda n: [4, 5, 6, 7],
    ),
    "with_columns": (
        lambda n: functools.reduce(lambda s, _: s.with_columns(v=pk.col("v") + 1), range(n), events()),
        lambda n: [v + n for v in ROWS["v"]],
    ),
    "when": (
        lambda n: events().with_columns(
            v=functools.reduce(
                lambda w, i: w.when(pk.col("v") == i).then(2 * i), range(n), pk.when(pk.col("v") < 0).then(0)
            ).otherwise(-1)
        ),
        lambda n: [2 * v for v in ROWS["v"]],
    ),
    "or": (
        lambda n: events().filter(functools.reduce(operator.or_, [pk.col("v") == i + 6 for i in range(n)])),
        lambda n: [6, 7, 8, 9],
    ),
    "and": (
        lambda n: events().filter(functools.reduce(operator.and_, [pk.col("v") != i + 6 for i in range(n)])),
        lambda n: [4, 5],
    ),
    "filter of many": (lambda n: events().filter(*[pk.col("v") != i + 6 for i in range(n)]), lambda n: [4, 5]),
    "is_in": (lambda n: events().filter(pk.col("v").is_in(range(6, 6 + 10 * n))), lambda n: [6, 7, 8, 9]),
    "or in SQL": (
        lambda n: pk.sql(
            f"select t, v from e where {' or '.join(f'v = {i + 6}' for i in range(n))}", e=events()
        ),
        lambda n: [6, 7, 8, 9],
    ),
    "union": (
        lambda n: events().union(*[events().filter(pk.col("v") > i + 9) for i in range(n)]),
        lambda n: ROWS["v"],
    ),
    "unions": (
        lambda n: functools.reduce(
            lambda s, i: s.union(events().filter(pk.col("v") > i + 9)), range(n // 5), events()
        ),
        lambda n: ROWS["v"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("chain", CHAINS)
def test_a_chain_of_five_hundred_is_answered(chain: str) -> None:
    make, expected = CHAINS[chain]
    query = make(500)
    assert query.collect()["v"].to_pylist() == expected(500)


@pytest.mark.parametrize("chain", ["filter", "with_columns", "or", "and", "when", "union"])
def test_planning_a_chain_takes_steps_in_proportion_to_its_length(chain: str) -> None:
    make, _ = CHAINS[chain]
    make(10).compiled()
    few, many = (calls(make(n).compiled) for n in (50, 150))
    assert many < 4.5 * few


def test_a_plan_of_a_thousand_verbs_is_answered_and_survives_its_text() -> None:
    query = CHAINS["filter"][0](1_000)
    assert decode(*encode(query.plan)) is query.plan
    assert len(ordered(query.plan)) == 1_001
    assert query.collect()["v"].to_pylist() == [4, 5, 6, 7]


# --- many columns and aggregates ------------------------------------------------------------------------------


def wide(columns: int) -> pk.Stream:
    data = {"t": [0, 1, 12]} | {f"c{i}": [i, i + 1, i + 2] for i in range(columns)}
    return pk.from_arrow(pa.table(data), time="t")


WIDE: dict[str, Callable[[int], pk.Stream]] = {
    "one filter": lambda n: wide(n).filter(pk.col("c1") > 1),
    "all columns computed": lambda n: wide(n).select(**{f"c{i}": pk.col(f"c{i}") + 1 for i in range(n)}),
    "a sum of each column": lambda n: wide(n).window(10).agg(**{f"c{i}": pk.sum(f"c{i}") for i in range(n)}),
    "few means of many columns": lambda n: (
        wide(n).window(10).agg(**{f"c{i}": pk.mean(f"c{i}") for i in range(n // 8)})
    ),
    "a look-back over each column": lambda n: (
        wide(n).rolling(10).agg(**{f"c{i}": pk.sum(f"c{i}") for i in range(n)})
    ),
}


@pytest.mark.parametrize("shape", WIDE)
def test_planning_takes_steps_in_proportion_to_columns(shape: str) -> None:
    def planned(columns: int) -> None:
        WIDE[shape](columns).compiled().explain("loop")

    planned(16)
    few, many = (calls(lambda n=n: planned(n)) for n in (64, 192))
    assert many < 4.5 * few


def test_a_sum_of_each_of_three_hundred_columns() -> None:
    found = WIDE["a sum of each column"](300).collect()
    assert [found[f"c{i}"].to_pylist() for i in range(300)] == [[2 * i + 1, i + 2] for i in range(300)]


# --- shared subexpressions in kernels -------------------------------------------------------------------------


def statements(body: Block) -> int:
    inner = [
        part
        for statement in body
        for part in (
            (statement.then, statement.orelse)
            if isinstance(statement, If)
            else (statement.body,)
            if isinstance(statement, For | While)
            else ()
        )
    ]
    return len(body) + sum(map(statements, inner))


@pytest.mark.parametrize("make", [nested, lambda n: doubled(n, operator.add, pk.col("v"))])
def test_a_kernel_computes_a_shared_subexpression_once(make: Callable[[int], pk.Expr]) -> None:
    schema = pa.schema({"t": pa.int64(), "v": pa.int64()})

    def size(times: int) -> int:
        fields = (ex.Field("x", make(times).node),)
        spec = RowsKernelSpec(schema, Time("t", pa.int64(), None), None, fields, frozenset(), frozenset())
        return statements(build_rows(spec).kernel.body)

    assert size(24) - size(16) == size(16) - size(8)


def test_an_error_inside_a_branch_counts_only_where_the_branch_is_taken() -> None:
    risky = pk.col("v") * (1 << 61)  # overflows for v > 3
    guarded = pk.when(pk.col("k") == 1).then(risky).otherwise(0)
    both = pk.when(pk.col("k") == 2).then(risky + 1).otherwise(guarded)
    few = pk.from_arrow(pa.table({"t": [0, 1], "k": [1, 3], "v": [2, 9]}), time="t")
    assert few.select(x=guarded, y=both).collect()["y"].to_pylist() == [1 << 62, 0]
    more = pk.from_arrow(pa.table({"t": [0, 1], "k": [1, 2], "v": [2, 9]}), time="t")
    assert more.select(x=guarded).collect()["x"].to_pylist() == [1 << 62, 0]
    with pytest.raises(pk.PenstockError):
        more.select(x=guarded, y=both).collect()
    with pytest.raises(pk.PenstockError):
        few.select(x=guarded, y=risky).collect()


# --- interning ------------------------------------------------------------------------------------------------


def test_equal_nodes_are_one_node_however_they_are_made() -> None:
    first, second = ((pk.col("v") + 1).node for _ in range(2))
    assert first is second
    assert copy.deepcopy(first) is first
    assert pickle.loads(pickle.dumps(first)) is first
    assert (pk.col("v") + 1.0).node is not first
    assert events().filter(pk.col("v") > 1).plan is not events().filter(pk.col("v") > 2).plan


def test_equal_queries_are_one_plan() -> None:
    source = events()
    first, second = (source.filter(pk.col("v") > 1).window(10).agg(n=pk.count()).plan for _ in range(2))
    assert first is second


def test_nodes_are_freed_when_nobody_uses_them() -> None:
    before = interned()
    node = doubled(1_000, operator.add, pk.col("unlike any other"))
    assert interned() >= before + 1_000
    del node
    assert interned() <= before


def test_threads_agree_on_one_node() -> None:
    made: list[list[ex.Expr]] = []

    def make() -> None:
        made.append([(pk.col(f"threads {i}") * i).node for i in range(300)])

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(a is b for others in made[1:] for a, b in zip(made[0], others, strict=True))


# --- limits and texts -----------------------------------------------------------------------------------------


def test_a_shared_expression_is_shown_once() -> None:
    text = show(doubled(40, operator.add, pk.col("v")).node)
    assert text.startswith("$39 + $39 with $1 = v + v, $2 = $1 + $1, ")
    assert show(doubled(2, operator.add, pk.col("v")).node) == "(v + v) + (v + v)"


def test_a_shared_plan_is_shown_once() -> None:
    query = doubled(20, lambda a, b: a.union(b), events().filter(pk.col("v") > 1))
    assert query.compiled().explain("plan").count("(as above)") == 20


def test_unions_that_repeat_rows_billions_of_times_are_refused_at_once() -> None:
    with pytest.raises(pk.UnsupportedError, match="too large"):
        doubled(64, lambda a, b: a.union(b), events()).collect()


def test_an_expression_that_nests_deeply_otherwise_is_refused_at_once() -> None:
    deep = functools.reduce(operator.add, [pk.col("v")] * 101)
    with pytest.raises(pk.UnsupportedError, match="nested more than 100 deep"):
        events().select(x=deep)


def test_file_statistics_are_compared_with_a_shared_predicate_once_per_node() -> None:
    predicate = doubled(40, lambda a, b: a & (b | a), pk.col("v") > 5)
    assert may_pass(predicate.node, {})
