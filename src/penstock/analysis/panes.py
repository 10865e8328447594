"""Whether rows of a windowed object can be folded into panes, and which results depend on the order of rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import gcd

import pyarrow as pa

from penstock.expr.aggregates import AggregateFunction, algebra_of
from penstock.expr.custom import Definition
from penstock.expr.nodes import Column, Expr, Field, columns_of
from penstock.expr.typing import type_of
from penstock.ir.nodes import (
    Apply,
    Asof,
    Attach,
    Body,
    Distinct,
    Input,
    Join,
    Lookback,
    Object,
    Program,
    Reduce,
    Reduction,
    RollingJoin,
    Samples,
    Signals,
    Top,
    Windowed,
    result_type,
    sources_of,
)
from penstock.loop.nodes import I64
from penstock.loop.numbers import is_text, machine_type
from penstock.types.arrow import kind_of, value_type
from penstock.types.windows import (
    Calendar,
    CarriedWindow,
    Count,
    LookBack,
    Session,
    Steps,
    TimeWindow,
    Window,
)

# --- Find the objects that depend on the order of samples of equal time: windows of rows, `first`, `distinct` and others.


def depends_on_order(body: Body) -> bool:
    """Return whether an object's result can depend on the order of samples of equal time."""
    match body:
        case Distinct() | Top() | Apply() | Signals() | Asof():
            return True
        case RollingJoin(reductions=reductions):
            return not all(algebra_of(reduction).commutative for reduction in reductions)
        case Reduce(domain=Count()) | Attach(domain=Count()):
            return True
        case Lookback(spans=spans) if any(span.rows is not None for span in spans):
            return True
        case Reduce(reductions=reductions) | Attach(reductions=reductions) | Lookback(reductions=reductions):
            return not all(algebra_of(reduction).commutative for reduction in reductions)
        case _:
            return False


def order_of_keys_is_seen(body: Reduce | Apply, program: Program) -> bool:
    """Return whether a later object depends on the order of a window's keys, which share a time."""
    this = next((obj for obj in program.objects if obj.body is body), None)
    if this is None or not body.keys:
        return False
    keys = frozenset(key.name for key in body.keys)
    return _seen(this.name, keys if isinstance(body, Apply) else _passed(keys, body.fields), program)


def _seen(name: str, keys: frozenset[str] | None, program: Program) -> bool:
    """Check the readers of an object. Columns `keys` distinguish samples of equal time; None: no known columns do."""
    return any(_seen_by(obj, keys, program) for obj in program.objects if name in sources_of(obj.body))


def _seen_by(this: Object, keys: frozenset[str] | None, program: Program) -> bool:
    """Check one reader and, if it passes samples on, its readers. Grouped by the keys, it reads one row per window."""
    match this.body:
        case Samples(fields=fields):
            return _seen(this.name, _passed(keys, fields), program)
        case Reduce() | Apply() as body:
            return depends_on_order(body) and not _apart(body, keys)
        case Attach(fields=fields) | Lookback(fields=fields) as body:
            here = depends_on_order(body) and not _apart(body, keys)
            return here or _seen(this.name, _passed(keys, fields), program)
        case Join() | Asof() | RollingJoin() as body:  # a join may repeat a sample
            return depends_on_order(body) or _seen(this.name, None, program)
        case body:
            return depends_on_order(body) or _seen(this.name, keys, program)


def _passed(keys: frozenset[str] | None, fields: Iterable[Field]) -> frozenset[str] | None:
    """Return the keys if the fields pass all of them unchanged, else None."""
    same = {field.name for field in fields if field.expr == Column(field.name)}
    return keys if keys is not None and keys <= same else None


def _apart(body: Reduce | Apply | Attach | Lookback, keys: frozenset[str] | None) -> bool:
    return keys is not None and keys <= {key.expr.name for key in body.keys if isinstance(key.expr, Column)}


# --- Find the streams whose row times matter only up to the pane of the windows.
#
#     ~w1[t] @ size 10s every 5s by k = { where kind == 1; sum(v) }   →   in0: steps of 5s
#
# All rows of a pane are in the same windows. If a file's statistics place all times of a row group in one pane, the
# time column of that row group need not be read: any time of the pane gives the same result. This requires that no
# expression reads the time column and no aggregate depends on the order of rows.
#
# This analysis does not change the program.


def coarse_times(program: Program) -> dict[str, Steps]:
    """Return, by stream, the panes of the single window that reads the stream."""
    inputs = [obj for obj in program.objects if isinstance(obj.body, Input)]
    found = {input_.name: _steps(input_, program) for input_ in inputs}
    streams = [input_.body.stream for input_ in inputs if isinstance(input_.body, Input)]
    return {
        stream: steps
        for stream, steps in zip(streams, found.values(), strict=True)
        if steps is not None and streams.count(stream) == 1
    }


def _steps(this: Object, program: Program) -> Steps | None:
    readers = [obj.body for obj in program.objects if this.name in sources_of(obj.body)]
    match readers:
        case [Reduce(domain=TimeWindow(size=size, every=every, offset=offset)) as window] if not (
            this.time.implied or depends_on_order(window) or this.time.column in _read(window)
        ):
            return Steps(this.time.column, gcd(size, every), offset)
        case _:
            return None


def _read(window: Reduce) -> frozenset[str]:
    """Return the columns that the expressions of a window read."""
    return frozenset(name for expr in _expressions(window) for name in columns_of(expr))


def _expressions(window: Reduce) -> Iterator[Expr]:
    for reduction in window.reductions:
        yield from reduction.args
        if reduction.where is not None:
            yield reduction.where
    yield from (key.expr for key in window.keys)
    yield from (node for node in (window.where,) if node is not None)


PLAIN = frozenset({"bool", "int", "uint", "float", "timestamp", "date", "duration"})


def in_panes(body: Reduce, program: Program) -> bool:
    """Return whether rows can be folded into panes: windows lie on a grid, and states of fixed size merge."""
    return pane_obstacle(body, program) is None


def pane_obstacle(body: Reduce, program: Program) -> str | None:
    """Return why rows cannot be folded into panes; None if they can."""
    if not isinstance(body.domain, TimeWindow | CarriedWindow):
        return f"{type(body.domain).__name__.lower()} windows do not lie on one grid of time"
    if order_of_keys_is_seen(body, program):
        return "a later operator depends on the order of keys in a window, which panes do not keep"
    schema = program[body.source].schema
    # Samples of a carried window are folded by the window's end; their times are not read.
    by_place = isinstance(body.domain, TimeWindow) and _ordered_by_place(body.source, program)
    facts = (ReductionFacts(reduction, schema) for reduction in body.reductions)
    return next(
        (f"{fact.name} {fact.why_not_merged}" for fact in facts if not fact.fits_panes(by_place)), None
    )


def _ordered_by_place(name: str, program: Program) -> bool:
    """Return whether time and position in one stream alone order the samples of an object."""
    match program[name].body:
        case Input(sequence=sequence):
            return sequence is None
        case Samples(source=source):
            return _ordered_by_place(source, program)
        case _:
            return False


def panes_per_window(domain: Window) -> int:
    """Count the panes of a window: its segments between the bounds of all windows."""
    if not isinstance(domain, TimeWindow):
        return 1
    whole, rest = divmod(domain.size, domain.every)
    return 2 * whole + 1 if rest else whole


def overlaps(body: Windowed | RollingJoin) -> bool:
    """Return whether a sample can be in several windows of an object."""
    if isinstance(body, Lookback | RollingJoin):
        return True
    match body.domain:
        case TimeWindow(size=size, every=every) | Count(size=size, every=every):
            return size > every
        case Calendar(size=step, every=every):
            return step != every
        case _:
            return False


def regular(body: Windowed | RollingJoin) -> bool:
    """Return whether windows begin at fixed row intervals over all rows: count windows without keys."""
    return isinstance(body, Reduce | Attach) and isinstance(body.domain, Count) and not body.keys


@dataclass(frozen=True)
class ReductionFacts:
    """The inputs of the choice: a reduction's algebra and the types of its arguments."""

    reduction: Reduction
    schema: pa.Schema

    @property
    def algebra(self) -> AggregateFunction:
        return algebra_of(self.reduction)

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        return tuple(type_of(arg, self.schema) for arg in self.reduction.args)

    @property
    def definition(self) -> Definition | None:
        found = dict(self.reduction.options).get("definition")
        return found.typed(self.types) if isinstance(found, Definition) else None

    @property
    def name(self) -> str:
        return "a custom aggregate" if self.definition is not None else self.reduction.function

    def fits_panes(self, by_place: bool) -> bool:
        """Return whether the reduction has a state of fixed size that merges in any order.

        An aggregate that keeps the value of one row, and so does not skip nulls, keeps machine values only and
        identifies the row by its time and position.
        """
        algebra = self.algebra
        if algebra.holistic or not algebra.associative:
            return False
        if algebra.skips_nulls:
            return algebra.commutative
        plain = all(kind_of(dtype) in PLAIN and dtype == value_type(dtype) for dtype in self.types)
        return plain and (algebra.commutative or by_place)

    @property
    def why_not_merged(self) -> str:
        """Return why states of panes cannot be merged, if they cannot."""
        if self.algebra.holistic:
            return "needs all values of a window"
        if not self.algebra.associative:
            return "has no merge"
        return "depends on the order of rows, or keeps values that are not machine numbers"

    @property
    def is_ends(self) -> bool:
        """Return whether the frame's bounds determine the result."""
        counts_rows = self.algebra.invertible and not self.reduction.args and self.reduction.where is None
        keeps_one = not (self.algebra.skips_nulls or self.algebra.commutative or self.algebra.holistic)
        return (counts_rows and self.definition is None) or keeps_one

    @property
    def has_prefixes(self) -> bool:
        """Return whether the reduction is a sum, or derived from sums, that is not invertible only due to rounding."""
        return self.definition is None and self.algebra.invertible and self.inexact

    @property
    def inexact(self) -> bool:
        """Return whether removing values would leave rounding errors; never for counts."""
        if self.definition is not None:
            return not self.definition.undoes
        return _any_float(self.types) and _any_float([result_type(self.reduction, self.schema)])


def _any_float(types: Iterable[pa.DataType]) -> bool:
    return any(kind_of(dtype) == "float" for dtype in types)


# --- Whether a windowed object can keep partial states per key between pushes, in place of its rows.


def state_obstacle(body: Body, program: Program) -> str | None:
    """Return why rows must be kept; None if states of a fixed size per key do, which rows are added to as they come."""
    if not isinstance(body, Reduce | Lookback):
        return "the result needs the rows of a window, not only their states"
    schema = program[body.source].schema
    return (
        (
            _span_obstacle(body.spans)
            if isinstance(body, Lookback)
            else _window_obstacle(body.domain, bool(body.keys))
        )
        or key_obstacle([type_of(key.expr, schema) for key in body.keys])
        or reductions_obstacle(_without_trees(body, schema), schema)
    )


def _without_trees(body: Reduce | Lookback, schema: pa.Schema) -> Sequence[Reduction]:
    """Return the reductions that no search tree of the values held answers: look-backs have trees of numbers."""
    if not isinstance(body, Lookback):
        return body.reductions
    return [reduction for reduction in body.reductions if not _has_tree(reduction, schema)]


def _has_tree(reduction: Reduction, schema: pa.Schema) -> bool:
    if reduction.function not in ("median", "quantile", "count_distinct"):
        return False
    kinds = {"int", "uint", "float"} | (
        {"bool", "timestamp", "date"} if reduction.function == "count_distinct" else set()
    )
    dtype = type_of(reduction.args[0], schema)
    return kind_of(dtype) in kinds and _has_word(dtype)


def reductions_obstacle(reductions: Sequence[Reduction], schema: pa.Schema) -> str | None:
    """Return why the rows that reductions read must be kept; None if states of a fixed size do."""
    found = (_reduction_obstacle(reduction, schema) for reduction in reductions)
    return next((obstacle for obstacle in found if obstacle), None)


def _window_obstacle(domain: Window, keyed: bool) -> str | None:
    match domain:
        case Session():
            return None
        case Count() if not keyed:
            return "windows of rows without keys are reduced at regular places"
        case Count(size=size, every=every):
            return None if size <= every else "windows of rows overlap: a row has a state in several"
        case _:
            return f"{type(domain).__name__.lower()} windows have no state per key"


def _span_obstacle(spans: Sequence[LookBack]) -> str | None:
    return "a delayed look-back reads rows in two places" if any(span.delay for span in spans) else None


def key_obstacle(types: Sequence[pa.DataType]) -> str | None:
    """Return why keys have no number of their own; None if a hash table of words holds them."""
    other = next((dtype for dtype in types if not _has_word(dtype) and not _has_codes(dtype)), None)
    return None if other is None else f"a key of type {other} has no word of 64 bits"


def _has_word(dtype: pa.DataType) -> bool:
    machine = machine_type(dtype)
    return machine is not None and machine.bits <= I64.bits


def _has_codes(dtype: pa.DataType) -> bool:
    return is_text(dtype) and not pa.types.is_string_view(dtype)


def _reduction_obstacle(reduction: Reduction, schema: pa.Schema) -> str | None:
    facts = ReductionFacts(reduction, schema)
    if not facts.fits_panes(by_place=False):
        return f"{facts.name} {facts.why_not_merged}"
    if facts.name != "count" and any(machine_type(dtype) is None for dtype in facts.types):
        return f"{facts.name} keeps values that are not machine numbers"
    return None
