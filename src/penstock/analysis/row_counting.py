"""Where rows are counted as accepted: once each, in the first stage that holds them or at the query's output."""

from __future__ import annotations

from penstock.ir import joins as jn
from penstock.ir import nodes as ir
from penstock.types.pairing import Lookup

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
    """Return whether a stage counts its input rows; filters and table lookups do not."""
    return isinstance(body, _COUNTING) or (isinstance(body, jn.Join) and not isinstance(body.pairing, Lookup))


def streams_behind(name: str, program: ir.Program) -> frozenset[str]:
    """Return the streams that an object's rows come from."""
    if "streams" not in program.facts:
        program.facts["streams"] = _streams(program)
    streams: frozenset[str] = program.facts["streams"][name]
    return streams


def _streams(program: ir.Program) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for each in program.objects:
        own = frozenset({each.body.stream}) if isinstance(each.body, ir.Input) else frozenset[str]()
        found[each.name] = own.union(*(found[source] for source in ir.sources_of(each.body)))
    return found


def paths(name: str, program: ir.Program) -> int:
    """Count the paths from an object to the stages that count its rows, or to the output."""
    if "paths" not in program.facts:
        program.facts["paths"] = _paths(program)
    count: int = program.facts["paths"][name]
    return count


def _paths(program: ir.Program) -> dict[str, int]:
    found = {each.name: int(each.name == program.output) for each in program.objects}
    for each in reversed(program.objects):
        for source in ir.sources_of(each.body):
            found[source] += 1 if counts(each.body) else found[each.name]
    return found
