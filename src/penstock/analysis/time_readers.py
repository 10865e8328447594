"""Find the later stages that depend on an object's time or arrival order."""

from __future__ import annotations

from penstock.ir import nodes as ir
from penstock.types.windows import Session


def read_by_time(name: str, program: ir.Program) -> bool:
    """Return whether a later stage depends on the watermark of an object's rows.

    Filters and projections do not; `top_k` depends on window ends only.
    """
    found: set[str] = set()
    for each in reversed(program.objects):
        if each.name in found or not isinstance(each.body, ir.Samples | ir.Top | ir.Merge):
            found.update(ir.sources_of(each.body))
    return name in found


def needs_arrival(stream: str, program: ir.Program) -> bool:
    """Return whether rows of a stream reach sessions through several inputs of a union; arrival order then decides lateness."""
    return has_sessions(program) and any(
        sum(stream in _streams_behind(source, program) for source in each.body.sources) > 1
        for each in program.objects
        if isinstance(each.body, ir.Merge)
    )


def has_sessions(program: ir.Program) -> bool:
    """Return whether a program has session windows."""
    bodies = (each.body for each in program.objects)
    return any(
        isinstance(body, ir.Reduce | ir.Attach | ir.Apply) and isinstance(body.domain, Session)
        for body in bodies
    )


def _streams_behind(name: str, program: ir.Program) -> frozenset[str]:
    """Return the streams that an object's rows come from."""
    found: dict[str, frozenset[str]] = {}
    for each in program.objects:
        own = frozenset({each.body.stream}) if isinstance(each.body, ir.Input) else frozenset[str]()
        found[each.name] = own.union(*(found[source] for source in ir.sources_of(each.body)))
    return found[name]
