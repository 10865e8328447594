"""Which algorithm runs, and the reason given: as text in tests/fixtures/physical/choose_algorithm.txt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import penstock as pk
from penstock.algorithms.monoids import Monoid
from penstock.algorithms.partials import monoid_of, partials_of
from penstock.algorithms.sliding.kernel import FrameShape, SlideSpec, slide_monoids
from penstock.analysis.panes import in_panes, panes_per_window
from penstock.api.custom import CustomAggregate
from penstock.expr.aggregates import AGGREGATES
from penstock.expr.nodes import Aggregate, Column, Expr, walk
from penstock.expr.show import show
from penstock.expr.typing import type_of
from penstock.ir.nodes import Program, Reduce, Reduction
from penstock.physical.choose_window import FEW_PANES, AlgorithmChoice, choices, preferred
from penstock.plan import nodes as pl
from penstock.runtime.engine import AGGREGATORS
from penstock.translate import to_ir
from penstock.types.windows import (
    Calendar,
    CalendarStep,
    CarriedWindow,
    Count,
    LookBack,
    Session,
    TimeWindow,
    Unbounded,
    Window,
)
from tests.unit.passes.cases import EVENTS, KIND, ORDERED, SECOND, F, V, agg, attach, fields, window

WIDE = TimeWindow(1000 * SECOND, SECOND)
DAY = CalendarStep(ticks=86_400 * SECOND)
WEEK = CalendarStep(ticks=7 * 86_400 * SECOND)

COUNTER = pk.aggregate(init=0, add=lambda s, x: s + x, result=lambda s: s)
MERGED = pk.aggregate(
    init=0,
    add=lambda s, x: s + x,
    result=lambda s: s,
    merge=lambda s, o: s + o,
    remove=lambda s, x: s - x,
    commutative=True,
)

ALL: dict[str, Expr] = {
    "counted": agg("count"),
    "total": agg("sum", V),
    "mean": agg("mean", V),
    "float total": agg("sum", F),
    "floats counted": agg("count", F),
    "most": agg("max", V),
    "name": agg("min", KIND),
    "spread": agg("var", V),
    "merged": MERGED(pk.Expr(V)).node,
}
IN_PARTITIONS: dict[str, Expr] = {
    "first": agg("first", V),
    "middle": agg("median", F),
    "collected": agg("list", V),
    "custom": COUNTER(pk.Expr(V)).node,
}


def look_back(**computed: Expr) -> pl.Plan:
    return pl.Lookback(EVENTS, (LookBack(size=10),), (), (fields(computed),), rows=False)


CASES: dict[str, tuple[pl.Plan, str | None]] = {
    "tumbling": (window(EVENTS, **ALL), None),
    "a slide longer than the size": (window(EVENTS, span=TimeWindow(3, 7), n=agg("sum", V)), None),
    "little overlap": (window(EVENTS, span=TimeWindow(4, 1), **ALL), None),
    "a slide that does not divide the size": (window(EVENTS, span=TimeWindow(10, 7), **ALL), None),
    "much overlap": (window(EVENTS, span=WIDE, **ALL), None),
    "a median beside them": (window(EVENTS, span=WIDE, **ALL, **IN_PARTITIONS), None),
    "first, by time alone": (window(EVENTS, span=WIDE, n=agg("first", V)), None),
    "first, by a sequence": (window(ORDERED, span=WIDE, n=agg("first", V)), None),
    "first, of texts": (window(EVENTS, span=WIDE, n=agg("first", KIND)), None),
    "beside each row": (attach(EVENTS, span=WIDE, **ALL), None),
    "windows that rows carry": (window(window(EVENTS, v=agg("sum", V)), span=CarriedWindow(), m=agg("max", V)), None),
    "sessions": (window(EVENTS, span=Session(5), **ALL, **IN_PARTITIONS), None),
    "counts one after the other": (window(EVENTS, span=Count(5, 5), m=agg("max", V)), None),
    "counts that overlap": (window(EVENTS, span=Count(5, 2), **ALL, **IN_PARTITIONS), None),
    "everything": (window(EVENTS, span=Unbounded(), m=agg("max", V)), None),
    "weeks": (window(EVENTS, span=Calendar(WEEK, WEEK, 0, "Europe/Berlin", "us"), m=agg("max", V)), None),
    "a week every day": (window(EVENTS, span=Calendar(WEEK, DAY, 0, "Europe/Berlin", "us"), m=agg("max", V)), None),
    "look-backs": (look_back(**ALL, **IN_PARTITIONS), None),
    "panes, forced to recompute": (window(EVENTS, span=WIDE, **ALL), "recompute"),
    "panes, forced to two-stacks": (window(EVENTS, span=TimeWindow(4, 1), **ALL), "two-stacks"),
    "panes, forced to subtract-on-evict": (window(EVENTS, span=TimeWindow(4, 1), **ALL), "subtract-on-evict"),
    "one pane, forced to two-stacks": (window(EVENTS, **ALL), "two-stacks"),
    "partitions, forced to recompute": (look_back(**ALL, **IN_PARTITIONS), "recompute"),
    "partitions, forced to two-stacks": (look_back(**ALL, **IN_PARTITIONS), "two-stacks"),
    "partitions, forced to subtract-on-evict": (look_back(**ALL, **IN_PARTITIONS), "subtract-on-evict"),
}  # fmt: skip


def chosen(program: Program, force: str | None = None) -> list[tuple[Reduction, AlgorithmChoice]]:
    """Pair the reductions of a program's output with the choices made for them."""
    body: Any = program[program.output].body
    return list(zip(body.reductions, choices(program, force)[program.output], strict=True))


def line(reduction: Reduction, choice: AlgorithmChoice) -> str:
    args = "{…}" if reduction.function == "custom" else ", ".join(map(show, reduction.args))
    return f"{reduction.function}({args}): {choice.algorithm} in {choice.way}; {choice.reason}"


def test_the_choices_are_those_of_the_fixture(golden: Callable[[str, str], None]) -> None:
    sections = []
    for name, (plan, force) in CASES.items():
        lines = [line(*value) for value in chosen(to_ir(plan), force)]
        sections.append("\n".join([f"# {name}", *dict.fromkeys(lines)]))
    golden("physical/choose_algorithm.txt", "\n\n".join(sections) + "\n")


TYPES = {
    "number": [Column("v"), Column("f"), Column("u")],
    "boolean": [Column("ok")],
    "text": [Column("kind")],
}
SCHEMA = pa.schema([*EVENTS.schema, pa.field("ok", pa.bool_())])
SOURCE = pl.Source("events", SCHEMA, EVENTS.time)


def every_reduction() -> list[Expr]:
    """List every aggregate over columns of every type that it takes."""
    made: list[Expr] = []
    for function in AGGREGATES.values():
        if function.name == "custom":
            continue
        options = (("q", 0.5),) if function.name == "quantile" else ()
        for column in (name for several in TYPES.values() for name in several):
            args = (column,) * max(function.least, 1)
            types = [SCHEMA.field(column.name).type] * len(args)
            if function.rule(types, function.settings(options)) is not None:
                made.append(Aggregate(function.name, args, None, options))
    return [*made, *map(typed, (COUNTER, MERGED))]


def typed(custom: CustomAggregate) -> Expr:
    """Apply a custom aggregate to integers, as a stream does."""
    (node,) = [part for part in walk(custom(pk.col("v")).node) if isinstance(part, Aggregate)]
    definition: Any = dict(node.options)["definition"]
    return Aggregate("custom", node.args, None, (("definition", definition.typed([pa.int64()])),))


def program_of(expr: Expr, span: Window) -> Program:
    return to_ir(window(SOURCE, span=span, x=expr))


def states_of(program: Program) -> list[Monoid]:
    """Give what is remembered of values, beside whether there are any."""
    (reduction,) = program[program.output].body.reductions  # type: ignore[union-attr]
    partials = partials_of([reduction], lambda expr: False)
    kept = [partial for partial in partials if partial.kind != "present"] or list(partials)
    return [monoid_of(partial, [type_of(arg, SCHEMA) for arg in partial.args], wide=True) for partial in kept]


@pytest.mark.parametrize("expr", every_reduction(), ids=show)
def test_what_is_chosen_is_what_the_states_can_do(expr: Expr) -> None:
    """In panes states are taken out of states, in partitions rows are; of texts partitions know the ranks only."""
    program = program_of(expr, WIDE)
    body = program[program.output].body
    assert isinstance(body, Reduce)
    ((_, choice),) = chosen(program)
    if in_panes(body, program):
        expected = all(state.take is not None for state in states_of(program))
        assert choice.way == "panes" and (choice.algorithm == "subtract-on-evict") is expected
    elif choice.algorithm in AGGREGATORS and Column("kind") not in body.reductions[0].args:
        types = tuple(type_of(argument, SCHEMA) for argument in body.reductions[0].args)
        spec = SlideSpec(
            SCHEMA, SOURCE.time, body.reductions, types, frozenset(), choice.algorithm, FrameShape()
        )
        expected = choice.algorithm != "recompute" and all(
            monoid.invertible for monoid in slide_monoids(spec)
        )
        assert choice.way == "partitions" and (choice.algorithm == "subtract-on-evict") is expected


@pytest.mark.parametrize("force", AGGREGATORS)
@pytest.mark.parametrize("expr", every_reduction(), ids=show)
def test_what_is_forced_is_done_or_the_reason_says_that_it_is_not(expr: Expr, force: str) -> None:
    for span in (WIDE, Count(9, 2)):
        ((_, choice),) = chosen(program_of(expr, span), force)
        refused = f"not by {force}" in choice.reason
        assert refused is (choice.algorithm != force) or choice.algorithm == "frame ends"


@pytest.mark.parametrize(
    ("size", "every", "panes", "algorithm"),
    [
        (10, 10, 1, "one pane"),
        (10, 25, 1, "one pane"),
        (20, 10, 2, "recompute"),
        (40, 10, 4, "recompute"),
        (50, 10, 5, "subtract-on-evict"),
        (11, 10, 3, "recompute"),
        (21, 10, 5, "subtract-on-evict"),
        (1000, 999, 3, "recompute"),
        (1000, 1, 1000, "subtract-on-evict"),
    ],
)
def test_windows_of_few_panes_are_merged_anew(size: int, every: int, panes: int, algorithm: str) -> None:
    body = to_ir(window(EVENTS, span=TimeWindow(size, every), n=agg("count")))
    domain: Any = body[body.output].body
    assert panes_per_window(domain.domain) == panes
    assert preferred(domain.domain) == algorithm
    assert (algorithm == "recompute") is (1 < panes <= FEW_PANES)


def test_an_engine_takes_only_algorithms_that_there_are() -> None:
    with pytest.raises(pk.EngineError, match="recompute, two-stacks, subtract-on-evict"):
        pk.Engine(aggregator="three-stacks")
