"""Split a plan at the shuffle: one plan per stream before it, and the query after it.

Before the shuffle, rows are filtered, reduced to the columns that the query reads, and extended by their keys,
which may be computed. The query itself runs after it. A time implied by the row number is stored in a column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.compile import Compiled, compile_plan
from penstock.expr.nodes import Column, Expr, Field
from penstock.ir.nodes import Input
from penstock.plan.nodes import Filter, Plan, Project, Source, rewrite
from penstock.plan.schema import source_schema, sources_of


@dataclass(frozen=True, slots=True)
class SenderPlan:
    """A plan over a stream's rows before the shuffle. Its last `keys` columns are keys."""

    plan: Plan
    keys: int


@dataclass(frozen=True, slots=True)
class PlanCut:
    behind: Plan
    senders: Mapping[str, SenderPlan]


def cut(compiled: Compiled, keys: Mapping[str, tuple[Expr, ...]]) -> PlanCut:
    """Split a query by the keys of each of its inputs. Without keys all rows go to one task."""
    behind = with_sources(compiled.plan, stored)
    read = compile_plan(behind).columns
    wanted = {
        source.name: tuple(source.schema.names) for source in sources_of(behind) if source.edges.late_to
    }
    columns = {**read, **wanted}  # late rows keep all columns
    inputs = inputs_of(compiled)
    return PlanCut(
        behind,
        {
            source.name: _sender(
                source,
                columns[source.name],
                compiled.predicates.get(source.name),
                keys.get(inputs[source.name], ()),
            )
            for source in sources_of(compiled.plan)
        },
    )


def inputs_of(compiled: Compiled) -> dict[str, str]:
    """Map each stream to the name of its input object in the program."""
    return {obj.body.stream: obj.name for obj in compiled.program.objects if isinstance(obj.body, Input)}


def _sender(
    source: Source, columns: tuple[str, ...], where: Expr | None, keys: tuple[Expr, ...]
) -> SenderPlan:
    rows: Plan = source if where is None else Filter(source, where)
    kept = [Field(name, Column(name)) for name in columns]
    hidden = hidden_names(source_schema(source), len(keys))
    made = [Field(name, expr) for name, expr in zip(hidden, keys, strict=True)]
    return SenderPlan(Project(rows, (*kept, *made), source.time.column), len(keys))


def hidden_names(schema: pa.Schema, many: int) -> list[str]:
    """Return names that no user column has."""
    longest = max(map(len, schema.names), default=0)
    return [f"{'_' * (longest + 1)}{place}" for place in range(many)]


def stored(source: Source) -> Source:
    """Return the source with its time in a column, if the time was implied."""
    if not source.time.implied:
        return source
    return replace(source, schema=source_schema(source), time=replace(source.time, period=None, start=0))


def with_sources(plan: Plan, change: Callable[[Source], Plan]) -> Plan:
    """Rebuild a plan with its sources replaced."""
    return rewrite(plan, lambda node: change(node) if isinstance(node, Source) else node)
