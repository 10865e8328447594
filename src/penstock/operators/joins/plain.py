"""The plain twin of `Join`: every pair of rows is compared, as the definition of joins says, whatever the algorithm."""

from __future__ import annotations

from penstock.expr import nodes as ex
from penstock.ir import nodes as ir
from penstock.ir import nodes as jn
from penstock.ir.interpret_joins import JoinSide, joined
from penstock.operators.plain_rows import Rows
from penstock.physical import nodes as ph
from penstock.types.windows import JOIN_TIME, WINDOW_END, WINDOW_START, Within, left_column, right_column


def join(op: ph.Join, node: ph.Node, left: tuple[ph.Node, Rows], right: tuple[ph.Node, Rows]) -> Rows:
    """Return the results of a join, in order."""
    sides = [JoinSide(_object(given), samples) for given, samples in (left, right)]
    return joined(_object(node), _body(op, node, left[0], right[0]), *sides)


def _object(node: ph.Node) -> ir.Object:
    return ir.Object(node.id, jn.Table(node.id), node.schema, node.clock)


def _body(op: ph.Join, node: ph.Node, left: ph.Node, right: ph.Node) -> jn.Joined:
    inputs, fields = (left.id, right.id), tuple(map(_field, op.columns))
    match op.pairing:
        case ph.Nearest(direction=direction, tolerance=tolerance, exact=exact):
            return jn.Asof(*inputs, op.on, direction, tolerance, exact, fields)
        case ph.Around(lo=lo, hi=hi, reductions=reductions):
            over = tuple(
                ir.Reduction(reduction.function, reduction.args, reduction.where, reduction.options)
                for reduction in reductions
            )
            return jn.RollingJoin(*inputs, op.on, Within(lo, hi), over, _rolling_fields(node, len(over)))
        case pairing:
            return jn.Join(*inputs, op.on, pairing, op.how, op.residual, fields)


def _field(column: ph.JoinColumn) -> ex.Field:
    """A key that the left row lacks is the right row's."""
    match column.origin:
        case "start":
            name = WINDOW_START
        case "end":
            name = WINDOW_END
        case "time":
            name = JOIN_TIME
        case "right":
            name = right_column(column.source)
        case _:
            name = left_column(column.source)
    return ex.Field(column.name, ex.Column(name))


def _rolling_fields(node: ph.Node, reductions: int) -> tuple[ex.Field, ...]:
    """The columns of the left row, then the reductions."""
    names = node.schema.names
    kept, added = names[: len(names) - reductions], names[len(names) - reductions :]
    return (
        *(ex.Field(name, ex.Column(name)) for name in kept),
        *(ex.Field(name, ex.Reduced(place)) for place, name in enumerate(added)),
    )
