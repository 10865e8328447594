"""Who reads the rows of an object further on."""

from __future__ import annotations

from penstock.analysis.row_counting import streams_behind
from penstock.ir import nodes as ir
from penstock.types.windows import Session


def read_by_time(name: str, program: ir.Program) -> bool:
    """Tell whether a later stage depends on how far time has advanced among an object's rows.

    Filters and projections do not, and `top_k` waits for the end of a window alone.
    """
    found: set[str] = set()
    for each in reversed(program.objects):
        if each.name in found or not isinstance(each.body, ir.Samples | ir.Top | ir.Merge):
            found.update(ir.sources_of(each.body))
    return name in found


def needs_arrival(stream: str, program: ir.Program) -> bool:
    """Tell whether rows of a stream reach sessions through several inputs of a union: their arrival decides who is late."""
    return has_sessions(program) and any(
        sum(stream in streams_behind(source, program) for source in each.body.sources) > 1
        for each in program.objects
        if isinstance(each.body, ir.Merge)
    )


def has_sessions(program: ir.Program) -> bool:
    """Tell whether a program has windows that are sessions."""
    bodies = (each.body for each in program.objects)
    return any(
        isinstance(body, ir.Reduce | ir.Attach | ir.Apply) and isinstance(body.domain, Session)
        for body in bodies
    )
