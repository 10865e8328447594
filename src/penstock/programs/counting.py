"""Who counts rows: each is counted once as accepted, by the first stage that holds it, or where it leaves the query."""

from __future__ import annotations

from penstock.ir import join_nodes as jn
from penstock.ir import nodes as ir
from penstock.types.joins import Lookup

_COUNTING = (
    ir.Reduce
    | ir.Attach
    | ir.Lookback
    | ir.Apply
    | ir.Distinct
    | ir.Top
    | ir.Signals
    | jn.Asof
    | jn.RollingJoin
)


def counts(body: ir.Body) -> bool:
    """Whether a stage counts the rows it takes: rows pass a table as they pass a filter."""
    return isinstance(body, _COUNTING) or (isinstance(body, jn.Join) and not isinstance(body.pairing, Lookup))


def counted_before(this: ir.Object, program: ir.Program) -> bool:
    """Whether rows of an object have been through a window, or another stage that counts them."""
    if counts(this.body):
        return True
    return any(counted_before(program[name], program) for name in ir.sources_of(this.body))


def streams_behind(name: str, program: ir.Program) -> frozenset[str]:
    """The streams that an object's rows come from."""
    body = program[name].body
    if isinstance(body, ir.Input):
        return frozenset({body.stream})
    return frozenset().union(*(streams_behind(each, program) for each in ir.sources_of(body)))


def paths(name: str, program: ir.Program) -> int:
    """How many ways lead from an object to a stage that counts its rows as accepted."""
    found = 1 if name == program.output else 0
    for each in program.objects:
        uses = ir.sources_of(each.body).count(name)
        found += uses * (1 if counts(each.body) else paths(each.name, program)) if uses else 0
    return found
