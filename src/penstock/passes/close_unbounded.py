"""Replace the window of all rows by a carried window with fixed bounds, so that states are kept instead of rows.

    ~w1[t] @ all time by k = {          →  ~w1.rows[t]  = ~in0[t] { …; window_start: least; window_end: most }
      #0 = ⊕(sum, ~in0[window].v)          ~w1.parts[t] @ its window by k = { #0 = ⊕(sum, …)  #1 = ⊕(min, ts)  … }
      window_start; window_end; k; s: #0   ~w1.whole[t] @ each sample, its window = { … first: ⊕(min, #1) … }
    }                                      ~w1[t] = ~w1.whole[t] { window_start: first; window_end: last + 1; … }

The window's bounds are the times of the first and last row of any key, known only at the end of the input: two more
reductions compute them. Applies only to aggregates with states of fixed size; others keep rows anyway.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.analysis.graph import redefine
from penstock.analysis.panes import in_panes, order_of_keys_is_seen
from penstock.expr.nodes import Call, Column, Expr, Field, Literal, Reduced, rewrite
from penstock.expr.typing import type_of
from penstock.ir.nodes import Attach, Object, Program, Reduce, Reduction, Samples, result_scope, result_types
from penstock.types.windows import WINDOW_BOUNDS, WINDOW_END, WINDOW_START, CarriedWindow, Unbounded


def close_unbounded(program: Program) -> Program:
    """Rewrite every unbounded window whose states have a fixed size."""
    for obj in program.objects:
        if isinstance(obj.body, Reduce) and _closes(obj.body, program):
            source = program[obj.body.source]
            program = redefine(program, obj.name, _Closing(obj, obj.body, source).objects())
    return program


def _closes(body: Reduce, program: Program) -> bool:
    """Return whether the window is unbounded, can run on states, and has bounds computable in the time's type."""
    source = program[body.source]
    plain = pa.types.is_timestamp(source.time.type) or source.time.type == pa.int64()
    carries = set(WINDOW_BOUNDS) & set(source.schema.names)
    return (
        isinstance(body.domain, Unbounded)
        and not order_of_keys_is_seen(body, program)
        and plain
        and not carries
        and source.time.shift == 0
        and in_panes(replace(body, domain=CarriedWindow()), program)
    )


@dataclass(frozen=True)
class _Closing:
    """Builds the objects that replace one unbounded window."""

    this: Object
    body: Reduce
    source: Object

    def objects(self) -> list[Object]:
        return [self._rows(), self._parts(), self._whole(), self._result()]

    def _named(self, part: str) -> str:
        return f"{self.this.name}.{part}"

    def _rows(self) -> Object:
        """All rows, with window bounds outside the range of row times."""
        dtype = self.source.time.type
        limits = zip(WINDOW_BOUNDS, (-(1 << 62), (1 << 63) - 1), strict=True)
        bounds = [Field(name, Literal(limit, dtype)) for name, limit in limits]
        fields = (*(Field(name, Column(name)) for name in self.source.schema.names), *bounds)
        schema = pa.schema([*self.source.schema, *(pa.field(name, dtype) for name in WINDOW_BOUNDS)])
        time = replace(self.source.time, period=None, start=0)
        return Object(self._named("rows"), Samples(self.source.name, None, fields), schema, time)

    def _parts(self) -> Object:
        """The reductions of each key, and its first and last time."""
        clock = Column(self.source.time.column)
        reductions = (*self.body.reductions, Reduction("min", (clock,)), Reduction("max", (clock,)))
        fields = (
            *(Field(name, Column(name)) for name in WINDOW_BOUNDS),
            *(Field(f"key{place}", Column(key.name)) for place, key in enumerate(self.body.keys)),
            *(Field(f"part{place}", Reduced(place)) for place in range(len(reductions))),
        )
        rows = self._rows()
        body = Reduce(rows.name, CarriedWindow(), self.body.keys, reductions, fields, self.body.where)
        scope, types = result_scope(body, rows), result_types(body, rows)
        schema = pa.schema([pa.field(field.name, type_of(field.expr, scope, types)) for field in fields])
        return Object(self._named("parts"), body, schema, self.this.time)

    def _whole(self) -> Object:
        """The same, with the first and last time of any key."""
        parts, count = self._parts(), len(self.body.reductions)
        spans = (Reduction("min", (Column(f"part{count}"),)), Reduction("max", (Column(f"part{count + 1}"),)))
        fields = [Field(name, Column(name)) for name in parts.schema.names]
        fields += [Field(name, Reduced(place)) for place, name in enumerate(("first", "last"))]
        dtype = self.source.time.type
        schema = pa.schema([*parts.schema, pa.field("first", dtype), pa.field("last", dtype)])
        body = Attach(parts.name, CarriedWindow(), (), spans, tuple(fields))
        return Object(self._named("whole"), body, schema, self.this.time)

    def _result(self) -> Object:
        having = None if self.body.having is None else self._over(self.body.having)
        fields = tuple(Field(field.name, self._over(field.expr)) for field in self.body.fields)
        return replace(self.this, body=Samples(self._named("whole"), having, fields))

    def _over(self, expr: Expr) -> Expr:
        """Read reductions, keys and bounds from the columns that now hold them."""
        known: dict[str, Expr] = {key.name: Column(f"key{place}") for place, key in enumerate(self.body.keys)}
        known |= {WINDOW_START: Column("first"), WINDOW_END: Call("add", (Column("last"), self._tick()))}

        def rule(node: Expr) -> Expr:
            match node:
                case Reduced(index=index):
                    return Column(f"part{index}")
                case Column(name=name):
                    return known[name]
                case _:
                    return node

        return rewrite(expr, rule)

    def _tick(self) -> Literal:
        dtype = self.source.time.type
        return Literal(1, pa.duration(dtype.unit) if pa.types.is_timestamp(dtype) else dtype)
