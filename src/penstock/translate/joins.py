"""Translate joins of the logical plan into the time-centric IR."""

from __future__ import annotations

from penstock.expr import nodes as ex
from penstock.expr.nodes import split_aggregates
from penstock.ir import joins as ir
from penstock.ir.nodes import Reduction
from penstock.plan import nodes as pl
from penstock.plan.schema import join_columns, schema_of, side_of


def join_body(plan: pl.Joined, left: str, right: str) -> ir.Joined:
    """Define a join over the objects of its inputs."""
    match plan:
        case pl.Join():
            return ir.Join(
                left,
                right,
                plan.on,
                plan.pairing,
                plan.how,
                plan.where,
                _fields(plan),
                plan.algorithm,
                plan.optimise,
            )
        case pl.AsofJoin():
            return ir.Asof(left, right, plan.on, plan.direction, plan.tolerance, plan.exact, _fields(plan))
        case pl.RollingJoin():
            return _rolling(plan, left, right)


def _fields(plan: pl.Join | pl.AsofJoin) -> tuple[ex.Field, ...]:
    columns = join_columns(plan, side_of(plan.left), side_of(plan.right))
    return tuple(ex.Field(column.name, ex.Column(column.of_pair)) for column in columns)


def _rolling(plan: pl.RollingJoin, left: str, right: str) -> ir.RollingJoin:
    found: list[ex.Aggregate] = []
    added = [ex.Field(field.name, split_aggregates(field.expr, found)[0]) for field in plan.fields]
    kept = [ex.Field(name, ex.Column(name)) for name in schema_of(plan.left).names]
    reductions = tuple(
        Reduction(aggregate.function, aggregate.args, aggregate.where, aggregate.options)
        for aggregate in found
    )
    return ir.RollingJoin(left, right, plan.on, plan.within, reductions, (*kept, *added))
