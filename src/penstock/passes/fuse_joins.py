"""Aggregate a join without materialising its pairs: pre-aggregate both sides and multiply.

    ~j2[t] = inner join of ~a, ~b on k = k, size 10 every 10 { …; k: `left.k`; x: `left.x`; join_time }
    ~w3[t] @ its window by k = { #0 = ⊕(count, ~j2[window])  #1 = ⊕(max, ~j2[window].x)  …; n: #0; m: #1 }
    →
    ~w3.left[t]  @ size 10 every 10 by key0 = { #0 = ⊕(count, ~a …)  #1 = ⊕(max, ~a.x)  … }
    ~w3.right[t] @ size 10 every 10 by key0 = { #0 = ⊕(count, ~b …)  … }
    ~w3.met[t]   = inner join of ~w3.left, ~w3.right on key0 = key0, its window { … }
    ~w3[t]       = ~w3.met[t] { …; n: left0 * right0; m: left1 }

The left rows of a key in a window pair with all right rows of it, so each left row counts once per right row (Yan and
Larson's eager aggregation). Where the groups are not the join keys, a second reduction sums the products. Applies only
to inner joins on equal keys in windows that do not overlap, without a condition on pairs, and to aggregates that each
read one side. A 64-bit integer is summed in two halves: a sum over rows without a match must not overflow.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pyarrow as pa

from penstock.analysis.graph import readers, redefine
from penstock.analysis.panes import in_panes, order_of_keys_is_seen
from penstock.analysis.predicates import conjuncts, is_total
from penstock.expr import nodes as ex
from penstock.expr.nodes import Call, Case, Cast, Column, Expr, Field, Literal, Reduced
from penstock.expr.typing import type_of
from penstock.ir import nodes as ir
from penstock.ir.nodes import Join, result_scope, result_types
from penstock.types.windows import (
    JOIN_TIME,
    WINDOW_BOUNDS,
    CarriedWindow,
    InWindow,
    TimeWindow,
    Window,
    left_column,
    right_column,
)

_HALF = 1 << 32
_PASSED = ("min", "max", "any", "all")  # equal over rows and over pairs
_INT64 = pa.int64()


def fuse_joins(program: ir.Program) -> ir.Program:
    """Replace every reduction over a join that does not need the pairs."""
    read = readers(program)
    for obj in program.objects:
        if not isinstance(obj.body, ir.Reduce) or read[obj.body.source] != 1:
            continue
        join = program[obj.body.source]
        if isinstance(join.body, Join) and _may_fuse(obj.body, join.body, program):
            sides = program[join.body.left], program[join.body.right]
            made = _Fusion.of(obj, obj.body, join.body, sides)
            objects = None if made is None else made.objects(join)
            if objects is not None and all(_keeps_states(one, program, objects) for one in objects):
                program = redefine(program, obj.name, objects)
    return program


def _may_fuse(body: ir.Reduce, join: Join, program: ir.Program) -> bool:
    pairing = join.pairing
    if not (isinstance(pairing, InWindow) and isinstance(pairing.left, TimeWindow)):
        return False
    grid = pairing.left
    same_window = body.domain in (CarriedWindow(), grid)
    apart = pairing.right == grid and grid.size <= grid.every
    plain = join.how == "inner" and join.where is None and bool(join.on) and join.algorithm == "auto"
    return same_window and apart and plain and not order_of_keys_is_seen(body, program)


def _keeps_states(this: ir.Object, program: ir.Program, made: list[ir.Object]) -> bool:
    if not isinstance(this.body, ir.Reduce):
        return True
    within = ir.Program(
        (*program.objects, *(object_ for object_ in made if object_.name != made[-1].name)), ""
    )
    return in_panes(this.body, within)


@dataclass
class _Side:
    """The pre-aggregation of one side: its keys, and reductions by window and key."""

    name: str
    rows: ir.Object
    keys: list[str]
    where: list[Expr] = field(default_factory=list)
    reductions: list[ir.Reduction] = field(default_factory=lambda: [ir.Reduction("count", ())])

    def key(self, name: str) -> str:
        """The column that holds a key."""
        if name not in self.keys:
            self.keys.append(name)
        return f"{self.name}_key{self.keys.index(name)}"

    def part(self, reduction: ir.Reduction) -> Column:
        """The column that holds a reduction."""
        if reduction not in self.reductions:
            self.reductions.append(reduction)
        return Column(f"{self.name}_part{self.reductions.index(reduction)}")

    @property
    def count(self) -> Column:
        return self.part(ir.Reduction("count", ()))

    def object(self, this: ir.Object, domain: Window) -> ir.Object:
        keys = tuple(Field(self.key(name), Column(name)) for name in self.keys)
        fields = (
            *(Field(name, Column(name)) for name in (*WINDOW_BOUNDS, *(key.name for key in keys))),
            *(Field(f"{self.name}_part{place}", Reduced(place)) for place in range(len(self.reductions))),
        )
        where = None
        for condition in self.where:
            where = condition if where is None else Call("and", (where, condition))
        body = ir.Reduce(
            self.rows.name, domain, keys, tuple(self.reductions), fields, where, None, strict=True
        )
        scope, types = result_scope(body, self.rows), result_types(body, self.rows)
        schema = pa.schema([pa.field(column.name, type_of(column.expr, scope, types)) for column in fields])
        return ir.Object(f"{this.name}.{self.name}", body, schema, this.time)


@dataclass
class _Fusion:
    """The rewrite of one reduction over a join."""

    this: ir.Object
    body: ir.Reduce
    join: Join
    sides: tuple[_Side, _Side]
    columns: dict[str, str]  # of the join's result, as columns of a pair
    groups: list[Field] = field(default_factory=list)
    reductions: list[ir.Reduction] = field(default_factory=list)  # of the second level

    @staticmethod
    def of(this: ir.Object, body: ir.Reduce, join: Join, rows: tuple[ir.Object, ir.Object]) -> _Fusion | None:
        keys = [one for one, _ in join.on], [other for _, other in join.on]
        sides = _Side("left", rows[0], keys[0]), _Side("right", rows[1], keys[1])
        columns = {column.name: column.expr.name for column in join.fields if isinstance(column.expr, Column)}
        return _Fusion(this, body, join, sides, columns)

    def objects(self, join: ir.Object) -> list[ir.Object] | None:
        """Return the objects that replace the reduction; None if it needs the pairs."""
        if not (self._filter() and self._group()):
            return None
        whole = self._groups_are_keys()
        values = [self._value(reduction, whole) for reduction in self.body.reductions]
        if any(value is None for value in values):
            return None
        pairing = self.join.pairing
        assert isinstance(pairing, InWindow)
        both = [side.object(self.this, pairing.left) for side in self.sides]
        met = self._met(both[0], both[1], join)
        found = [value for value in values if value is not None]
        last = self._result(met, found) if whole else self._regrouped(met, found)
        return [*both, met, last]

    # -- rows and groups -------------------------------------------------------------------------------

    def _own(self, expr: Expr, side: int | None = None) -> tuple[int, Expr] | None:
        """Rewrite an expression over one side, and return the side; None if it reads both sides or the join time."""
        partners = {left_column(one): right_column(other) for one, other in self.join.on}
        read = {self.columns.get(name, JOIN_TIME) for name in ex.columns_of(expr)}
        for place, prefix in ((0, left_column("")), (1, right_column(""))):
            named = {name: partners.get(name, name) if place else name for name in read}
            if side in (None, place) and all(name.startswith(prefix) for name in named.values()):
                own: dict[str, Expr] = {
                    name: Column(named[pair].removeprefix(prefix))
                    for name, pair in self.columns.items()
                    if pair in named
                }
                over = ex.substitute(expr, own)
                return (place, over) if is_total(over, self.sides[place].rows.schema) else None
        return None

    def _filter(self) -> bool:
        """Move each conjunct of the filter to the side it reads; return False if one reads both."""
        for part in () if self.body.where is None else conjuncts(self.body.where):
            found = self._own(part)
            if found is None:
                return False
            self.sides[found[0]].where.append(found[1])
        return True

    def _group(self) -> bool:
        """Add the grouping columns to the keys of their sides; return False if one is computed."""
        for key in self.body.keys:
            found = self._own(key.expr)
            if found is None or not isinstance(found[1], Column):
                return False
            self.groups.append(Field(key.name, Column(self.sides[found[0]].key(found[1].name))))
        return True

    def _groups_are_keys(self) -> bool:
        """Return whether each group has at most one pre-aggregated row per side."""
        named = {group.expr.name for group in self.groups if isinstance(group.expr, Column)}
        own = [{side.key(name) for name in side.keys} for side in self.sides]
        mine, its = ([side.key(name) for name in side.keys[: len(self.join.on)]] for side in self.sides)
        same = {one: other for one, other in zip(mine, its, strict=True) if one in named or other in named}
        named |= {name for pair in same.items() for name in pair}
        return named >= own[0] | own[1]

    # -- reductions --------------------------------------------------------------------------------------

    def _value(self, reduction: ir.Reduction, whole: bool) -> Expr | None:
        """Rewrite a reduction over pairs as an expression over `met`, or over reductions of it."""
        found = self._placed(reduction)
        if found is None:
            return None
        place, over = found
        side, times = self.sides[place], self.sides[1 - place].count
        match over.function:
            case "count":
                return self._total(Call("mul", (side.part(over), times)), whole)
            case function if function in _PASSED:
                return side.part(over) if whole else self._reduced(ir.Reduction(function, (side.part(over),)))
            case "mean" if whole:
                return side.part(over)
            case "sum":
                return self._sum(over, side, times, whole)
            case _:
                return None

    def _placed(self, reduction: ir.Reduction) -> tuple[int, ir.Reduction] | None:
        """Rewrite a reduction over the rows of one side, and return the side."""
        if reduction.options or len(reduction.args) > 1:
            return None
        exprs = [*reduction.args, *(() if reduction.where is None else (reduction.where,))]
        for place in (0, 1):
            found = [self._own(operand, place) for operand in exprs]
            over = [pair[1] for pair in found if pair is not None]
            if len(over) == len(exprs):
                args = tuple(over[: len(reduction.args)])
                where = None if reduction.where is None else over[-1]
                return place, replace(reduction, args=args, where=where)
        return None

    def _sum(self, over: ir.Reduction, side: _Side, times: Column, whole: bool) -> Expr | None:
        arg = over.args[0]
        dtype = type_of(arg, side.rows.schema)
        if pa.types.is_floating(dtype) and dtype != pa.float16():
            return self._total(Call("mul", (side.part(over), times)), whole)
        if not pa.types.is_integer(dtype) or dtype == pa.uint64():
            return None
        if dtype.bit_width < 64:
            return self._total(Call("mul", (side.part(over), times)), whole)
        high, low = (side.part(replace(over, args=(half,))) for half in _halves(arg))
        highs = self._total(Call("mul", (high, times)), whole)
        return _put_together(highs, self._total(Call("mul", (low, times)), whole))

    def _total(self, product: Expr, whole: bool) -> Expr:
        return product if whole else self._reduced(ir.Reduction("sum", (product,)))

    def _reduced(self, reduction: ir.Reduction) -> Expr:
        if reduction not in self.reductions:
            self.reductions.append(reduction)
        return Reduced(self.reductions.index(reduction))

    # -- objects -------------------------------------------------------------------------------------------

    def _met(self, left: ir.Object, right: ir.Object, join: ir.Object) -> ir.Object:
        """Join the states of both sides by key and window."""
        keys = len(self.join.on)
        on = tuple(
            (self.sides[0].key(one), self.sides[1].key(other))
            for one, other in zip(self.sides[0].keys[:keys], self.sides[1].keys[:keys], strict=True)
        )
        sources = ((left, left_column), (right, right_column))
        named = [
            (column, into(column.name))
            for rows, into in sources
            for column in rows.schema
            if column.name not in WINDOW_BOUNDS
        ]
        bounds = [left.schema.field(name) for name in WINDOW_BOUNDS]
        fields = (
            *(Field(name, Column(name)) for name in WINDOW_BOUNDS),
            *(Field(column.name, Column(pair)) for column, pair in named),
            Field(JOIN_TIME, Column(JOIN_TIME)),
        )
        schema = pa.schema(
            [
                *bounds,
                *(column for column, _ in named),
                pa.field(JOIN_TIME, join.schema.field(join.time.column).type),
            ]
        )
        pairing = InWindow(CarriedWindow(), CarriedWindow())
        body = Join(left.name, right.name, on, pairing, "inner", None, fields)
        return ir.Object(f"{self.this.name}.met", body, schema, join.time)

    def _result(self, met: ir.Object, values: list[Expr]) -> ir.Object:
        """Compute the fields over the joined states."""
        fields = tuple(
            Field(column.name, self._typed(column, self._over(column.expr, values), met))
            for column in self.body.fields
        )
        having = None if self.body.having is None else self._over(self.body.having, values)
        return replace(self.this, body=ir.Samples(met.name, having, fields))

    def _typed(self, field: Field, expr: Expr, met: ir.Object) -> Expr:
        wanted = self.this.schema.field(field.name).type
        return expr if type_of(expr, met.schema) == wanted else Cast(expr, wanted)

    def _over(self, expr: Expr, values: list[Expr]) -> Expr:
        known = {group.name: group.expr for group in self.groups}

        def rule(node: Expr) -> Expr:
            match node:
                case Reduced(index=index):
                    return values[index]
                case Column(name=name):
                    return known.get(name, node)
                case _:
                    return node

        return ex.rewrite(expr, rule)

    def _regrouped(self, met: ir.Object, values: list[Expr]) -> ir.Object:
        """Sum the products over the keys of a group."""

        def rule(node: Expr) -> Expr:
            return values[node.index] if isinstance(node, Reduced) else node

        fields = tuple(Field(column.name, ex.rewrite(column.expr, rule)) for column in self.body.fields)
        having = None if self.body.having is None else ex.rewrite(self.body.having, rule)
        groups, reductions = tuple(self.groups), tuple(self.reductions)
        body = ir.Reduce(met.name, CarriedWindow(), groups, reductions, fields, None, having)
        return replace(self.this, body=body)


def _put_together(high: Expr, low: Expr) -> Expr:
    """Compute high * 2^32 + low. Bits of `low` above 32 are carried first, so this fails only if the result overflows."""
    half = Literal(_HALF, _INT64)
    carried = Call("add", (high, Call("floordiv", (low, half))))
    return Call("add", (Call("mul", (carried, half)), Call("mod", (low, half))))


def _halves(arg: Expr) -> tuple[Expr, Expr]:
    """Split an integer into high * 2^32 + low with `low` nearest to zero, so that small numbers have high 0."""
    half = Literal(_HALF, _INT64)
    low, high = Call("mod", (arg, half)), Call("floordiv", (arg, half))
    above = Call("ge", (low, Literal(_HALF >> 1, _INT64)))
    return (
        Case(((above, Call("add", (high, Literal(1, _INT64)))),), high),
        Case(((above, Call("sub", (low, half))),), low),
    )
