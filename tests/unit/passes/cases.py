"""Small named programs, one list per pass, that show what it does and where it must not."""

from __future__ import annotations

import pyarrow as pa

from penstock.expr import nodes as ex
from penstock.expr.nodes import Call, Case, Cast, Column, Expr, Field, IsIn, Literal
from penstock.plan import nodes as pl
from penstock.types.time import Time
from penstock.types.windows import CarriedWindow, TimeWindow, Unbounded, Window
from tests.unit.passes.join_cases import FUSE_JOINS
from tests.unit.passes.signal_cases import FUSE_SIGNALS, PRUNE_SIGNALS, SHARE_SIGNALS

INT, FLOAT, BOOL, TEXT = pa.int64(), pa.float64(), pa.bool_(), pa.string()
CLOCK = Time("ts", pa.timestamp("us"), "us")
SCHEMA = pa.schema({"ts": pa.timestamp("us"), "k": INT, "f": FLOAT, "kind": TEXT, "v": INT, "u": pa.uint64()})
EVENTS = pl.Source("events", SCHEMA, CLOCK)
ORDERED = pl.Source("events", SCHEMA, CLOCK, sequence="u")
SECOND = 1_000_000
TEN = TimeWindow(10 * SECOND, 10 * SECOND)
SLIDING = TimeWindow(10 * SECOND, 2 * SECOND, SECOND)

Fields = dict[str, Expr]


def col(name: str) -> Expr:
    return Column(name)


def lit(value: float | str | bool | None, dtype: pa.DataType = INT) -> Literal:
    return Literal(value, dtype)


def call(name: str, *args: Expr) -> Expr:
    return Call(name, args)


def agg(name: str, *args: Expr, where: Expr | None = None) -> Expr:
    return ex.Aggregate(name, args, where)


def fields(named: Fields) -> tuple[Field, ...]:
    return tuple(Field(name, expr) for name, expr in named.items())


def where(plan: pl.Plan, predicate: Expr) -> pl.Plan:
    return pl.Filter(plan, predicate)


def select(plan: pl.Plan, *names: str, time: str = "ts", **computed: Expr) -> pl.Plan:
    return pl.Project(plan, fields({name: col(name) for name in names} | computed), time)


def window(plan: pl.Plan, *by: str, span: Window = TEN, **computed: Expr) -> pl.Plan:
    return pl.Aggregate(plan, span, by, fields(computed))


def attach(plan: pl.Plan, *by: str, span: Window = TEN, **computed: Expr) -> pl.Plan:
    return pl.Attach(plan, span, by, fields(computed))


V, K, F, KIND, TS, U = (col(name) for name in ("v", "k", "f", "kind", "ts", "u"))
VIEWS = where(EVENTS, call("eq", KIND, lit("view", TEXT)))
K_IS_1 = call("eq", K, lit(1))
V_IS_POSITIVE = call("gt", V, lit(0))
LARGE_V = call("gt", V, lit(100))
RAISES = call("gt", call("mul", V, V), lit(9))
TOTALS = window(VIEWS, "k", total=agg("sum", V), n=agg("count"))
LARGE = call("gt", col("total"), lit(3))
TRUE, FALSE, NULL = lit(True, BOOL), lit(False, BOOL), lit(None, BOOL)
DEEP = call("mul", call("add", V, lit(1)), call("sub", V, lit(2)))
WIDE = select(EVENTS, "ts", a=DEEP, b=call("add", DEEP, DEEP))

FOLD_CONSTANTS = {
    "arithmetic on literals": where(EVENTS, call("gt", V, call("mul", lit(2), lit(3)))),
    "a true filter vanishes": where(EVENTS, call("or", K_IS_1, call("lt", lit(1), lit(2)))),
    "a false filter stays": where(EVENTS, call("and", K_IS_1, FALSE)),
    "true is neutral to and": where(EVENTS, call("and", TRUE, K_IS_1)),
    "false is neutral to or": where(EVENTS, call("or", K_IS_1, FALSE)),
    "null is not neutral": where(EVENTS, call("and", NULL, K_IS_1)),
    "double negation": where(EVENTS, call("not", call("not", K_IS_1))),
    "overflow is left to the rows": select(EVENTS, "ts", x=call("add", lit(2**63 - 1), lit(1))),
    "a decided branch": select(EVENTS, "ts", x=Case(((FALSE, V), (K_IS_1, lit(5)), (TRUE, lit(6))), lit(7))),
    "a null condition is never taken": select(EVENTS, "ts", x=Case(((NULL, V),), lit(7))),
    "a sum of literals is no literal": select(EVENTS, "ts", x=call("add", U, call("add", lit(1), lit(2)))),
    "a branch that would change the type": select(EVENTS, "ts", x=Case(((TRUE, lit(1)),), lit(0.5, FLOAT))),
    "inside reductions and having": where(
        window(EVENTS, "k", total=agg("sum", call("add", V, call("add", lit(1), lit(1))), where=TRUE)),
        call("gt", col("total"), call("neg", lit(-3))),
    ),
    "membership": where(EVENTS, call("or", IsIn(lit(1), (lit(1), lit(2))), K_IS_1)),
}


def chain(function: str, *operands: Expr) -> Expr:
    """Nest operands as written in Python: the first two innermost."""
    whole = operands[0]
    for operand in operands[1:]:
        whole = call(function, whole, operand)
    return whole


K_IS_ONE_OF_NINE = chain("or", *(call("eq", K, lit(value)) for value in range(9)))

MERGE_COMPARISONS = {
    "a long chain of or": where(EVENTS, K_IS_ONE_OF_NINE),
    "a short chain stays": where(EVENTS, chain("or", *(call("eq", K, lit(value)) for value in range(8)))),
    "a long chain of and": where(EVENTS, chain("and", *(call("ne", lit(value), K) for value in range(9)))),
    "other operands stay": where(
        EVENTS,
        chain(
            "or",
            V_IS_POSITIVE,
            *(call("eq", KIND, lit(text, TEXT)) for text in "abcdefgh"),
            LARGE_V,
            IsIn(KIND, (lit("a", TEXT), lit("i", TEXT))),
        ),
    ),
    "two columns": where(
        EVENTS, chain("or", *(call("eq", column, lit(value)) for value in range(9) for column in (K, V)))
    ),
    "floats are not whole numbers": where(
        EVENTS, chain("or", *(call("eq", F, lit(value)) for value in range(9)))
    ),
    "inside another chain": where(EVENTS, call("and", K_IS_ONE_OF_NINE, V_IS_POSITIVE)),
    "a chain that is read twice is not taken apart": where(
        EVENTS, call("and", call("or", K_IS_ONE_OF_NINE, V_IS_POSITIVE), call("not", K_IS_ONE_OF_NINE))
    ),
}

FUSE_SAMPLES = {
    "filter after filter": where(VIEWS, V_IS_POSITIVE),
    "a predicate that can fail looks only where the first is true": where(VIEWS, RAISES),
    "computed columns are inlined": where(
        select(VIEWS, "ts", x=call("add", V, lit(1))), call("gt", col("x"), lit(3))
    ),
    "a constant column is no literal": select(
        select(EVENTS, "ts", "u", one=lit(1)), "ts", x=call("add", U, col("one"))
    ),
    "into the window": TOTALS,
    "into keys, arguments and predicates": window(
        select(VIEWS, "ts", half=call("floordiv", V, lit(2)), double=call("add", V, V)),
        "half",
        total=agg("sum", col("double"), where=call("gt", col("half"), lit(0))),
    ),
    "behind the window": where(TOTALS, LARGE),
    "a projection behind the window": select(
        TOTALS, "window_end", time="window_end", mean=call("div", col("total"), col("n"))
    ),
    "a renamed time": window(select(VIEWS, "v", time="at", at=TS), n=agg("count")),
    "a moved time stays": window(
        select(VIEWS, "v", ts=call("add", TS, lit(1, pa.duration("us")))), n=agg("count")
    ),
    "windows over windows": window(where(TOTALS, LARGE), span=SLIDING, most=agg("max", col("total"))),
    "before an attached window": attach(VIEWS, "k", span=SLIDING, share=call("div", V, agg("sum", V))),
    "behind an attached window": select(attach(VIEWS, "k", total=agg("sum", V)), "ts", "total"),
    "a filter behind an attached window stays": where(attach(EVENTS, "k", total=agg("sum", V)), LARGE),
    "a carried window": window(where(TOTALS, LARGE), span=CarriedWindow(), most=agg("max", col("total"))),
    "into the branches of a union": where(pl.Union((EVENTS, VIEWS)), V_IS_POSITIVE),
    "past a union into the window": window(where(pl.Union((EVENTS, EVENTS)), V_IS_POSITIVE), n=agg("count")),
    "a shared cheap filter is repeated": pl.Union(
        (window(VIEWS, n=agg("count")), window(VIEWS, n=agg("sum", V)))
    ),
    "growth is bounded": select(
        select(WIDE, "ts", c=call("mul", col("b"), col("b"))),
        "ts",
        d=call("add", call("mul", col("c"), col("c")), call("mul", col("c"), col("c"))),
    ),
}

PUSH_FILTER = {
    "a predicate on a key": where(TOTALS, call("and", K_IS_1, LARGE)),
    "a predicate on a key and a result stays": where(TOTALS, call("or", K_IS_1, LARGE)),
    "a predicate that can fail stays": where(TOTALS, call("gt", call("add", K, lit(1)), lit(1))),
    "a predicate on the window stays": where(
        TOTALS, call("lt", col("window_end"), lit(5, pa.timestamp("us")))
    ),
    "a float key that is compared": where(
        window(EVENTS, "f", n=agg("count")), call("gt", F, lit(0.0, FLOAT))
    ),
    "a float key whose sign of zero shows stays": where(
        window(EVENTS, "f", n=agg("count")), call("gt", call("div", lit(1.0, FLOAT), F), lit(0.0, FLOAT))
    ),
    "below an attached window": where(attach(EVENTS, "k", total=agg("sum", V)), call("and", K_IS_1, LARGE)),
    "below distinct": where(pl.Distinct(EVENTS, ("k", "kind"), "first"), call("and", K_IS_1, V_IS_POSITIVE)),
    "the bounds of a carried window": where(
        window(TOTALS, span=CarriedWindow(), most=agg("max", col("total"))),
        call("lt", col("window_end"), lit(5, pa.timestamp("us"))),
    ),
}

SHARE_REDUCTIONS = {
    "reductions that differ stay": window(
        EVENTS, "k", a=agg("sum", V), b=call("div", agg("sum", V), agg("count")), c=agg("count", V)
    ),
    "reductions nobody reads": select(
        window(EVENTS, "k", a=agg("min", V), b=agg("max", V), c=agg("max", V)),
        "window_end",
        "b",
        "c",
        time="window_end",
    ),
    "after fusion made them alike": window(
        select(EVENTS, "ts", "v", w=V), a=agg("sum", V), b=agg("sum", col("w"))
    ),
}

PRUNE_COLUMNS = {
    "inputs narrow": TOTALS,
    "columns nobody reads": window(select(EVENTS, "ts", "k", "v", x=DEEP), "k", total=agg("sum", V)),
    "an identity disappears": window(select(EVENTS, "ts", "k"), "k", n=agg("count")),
    "a selection at the end becomes one of the input": select(EVENTS, "ts", "k"),
    "the order column stays for distinct": select(pl.Distinct(ORDERED, ("k",), "last"), "ts", "k"),
    "a selection stays where its reader takes samples whole": pl.Distinct(
        select(pl.Distinct(EVENTS, ("k",), "first"), "ts", "kind"), ("kind",), "last"
    ),
    "the order column goes where nothing depends on order": window(ORDERED, "k", n=agg("count")),
    "bounds stay for the largest": select(
        pl.TopK(window(EVENTS, "k", total=agg("sum", V), n=agg("count")), 2, "total"),
        "window_end",
        "k",
        time="window_end",
    ),
    "through a union": window(pl.Union((VIEWS, EVENTS)), total=agg("sum", V)),
    "through an attached window": select(attach(VIEWS, "k", a=agg("sum", V), b=agg("count")), "ts", "a"),
    "a cast keeps its column": select(select(EVENTS, "ts", "f", x=Cast(V, FLOAT)), "ts", "x"),
}

EVERYTHING = Unbounded()
CLOSE_UNBOUNDED = {
    "states of each key, and the first and last time": window(
        EVENTS, "k", span=EVERYTHING, total=agg("sum", V)
    ),
    "a filter and fields over the result": where(
        window(VIEWS, span=EVERYTHING, n=agg("count"), ends=col("window_end")), call("gt", col("n"), lit(3))
    ),
    "values of a window are rows": window(EVENTS, "k", span=EVERYTHING, middle=agg("median", V)),
    "rows are kept anyway": attach(EVENTS, "k", span=EVERYTHING, total=agg("sum", V)),
    "windows with bounds stay": window(EVENTS, "k", total=agg("sum", V)),
}

ALL = {
    "fold_constants": FOLD_CONSTANTS,
    "fuse_samples": FUSE_SAMPLES,
    "push_filter": PUSH_FILTER,
    "merge_comparisons": MERGE_COMPARISONS,
    "share_reductions": SHARE_REDUCTIONS,
    "close_unbounded": CLOSE_UNBOUNDED,
    "prune_columns": {**PRUNE_COLUMNS, **PRUNE_SIGNALS},
    "fuse_joins": FUSE_JOINS,
    "fuse_signals": FUSE_SIGNALS,
    "share_signals": SHARE_SIGNALS,
}
