"""Find the later stages that depend on an object's time or arrival order."""

from __future__ import annotations

from penstock.ir import nodes as ir
from penstock.types.windows import Session


def read_by_time(name: str, program: ir.Program) -> bool:
    """Return whether a later stage depends on the watermark of an object's rows.

    Filters and projections do not; `top_k` depends on window ends only.
    """
    found: set[str] = set()
    for obj in reversed(program.objects):
        if obj.name in found or not isinstance(obj.body, ir.Samples | ir.Top | ir.Merge):
            found.update(ir.sources_of(obj.body))
    return name in found


def needs_arrival(stream: str, program: ir.Program) -> bool:
    """Return whether rows of a stream reach sessions through several inputs of a union; arrival order then decides lateness."""
    return has_sessions(program) and any(
        sum(stream in _streams_behind(source, program) for source in obj.body.sources) > 1
        for obj in program.objects
        if isinstance(obj.body, ir.Merge)
    )


def has_sessions(program: ir.Program) -> bool:
    """Return whether a program has session windows."""
    bodies = (obj.body for obj in program.objects)
    return any(
        isinstance(body, ir.Reduce | ir.Attach | ir.Apply) and isinstance(body.domain, Session)
        for body in bodies
    )


def _streams_behind(name: str, program: ir.Program) -> frozenset[str]:
    """Return the streams that an object's rows come from."""
    found: dict[str, frozenset[str]] = {}
    for obj in program.objects:
        own = frozenset({obj.body.stream}) if isinstance(obj.body, ir.Input) else frozenset[str]()
        found[obj.name] = own.union(*(found[source] for source in ir.sources_of(obj.body)))
    return found[name]
