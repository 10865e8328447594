"""Find the streams whose rows may be distributed over tasks arbitrarily if the other stream is replicated.

A left row of a join matches right rows only, so any task that has all right rows can process it. The rows of a very
frequent key therefore need not all go to one task (the join-matrix: left rows once, right rows everywhere). This
holds for joins whose result for a left row depends on no other left row, and only if all operators before and after
the join process rows one by one.

This analysis does not change the program.
"""

from __future__ import annotations

from penstock.analysis.partition_keys import looks_up
from penstock.ir import nodes as ir
from penstock.ir.joins import Asof, Join, RollingJoin, Table
from penstock.types.windows import Calendar, InWindow, Lookup, TimeWindow, Within


def spreadable(program: ir.Program) -> tuple[str, ...]:
    """Return the names of the streams, the left one first; empty if the query does not allow this."""
    joins = [obj for obj in program.objects if not _row_by_row(obj.body)]
    if len(joins) != 1:
        return ()
    body = joins[0].body
    if not (isinstance(body, Join | Asof | RollingJoin) and _left_rows_alone(body)):
        return ()
    streams = [_stream(name, program) for name in (body.left, body.right)]
    if None in streams or streams[0] == streams[1]:
        return ()
    both = isinstance(body, Join) and body.how == "inner"
    return tuple(stream for stream in streams[: 2 if both else 1] if stream is not None)


def _row_by_row(body: ir.Body) -> bool:
    lookup = isinstance(body, Join) and isinstance(body.pairing, Lookup) and looks_up(body)
    return lookup or isinstance(body, ir.Input | ir.Samples | Table)


def _left_rows_alone(body: Join | Asof | RollingJoin) -> bool:
    """Return whether the result for a left row is independent of other left rows; not so in sessions and unbounded windows."""
    match body:
        case Join(
            pairing=InWindow(left=TimeWindow() | Calendar(), right=TimeWindow() | Calendar()) | Within()
        ):
            return body.how in ("inner", "left", "semi", "anti")
        case Asof() | RollingJoin():
            return True
        case _:
            return False


def _stream(name: str, program: ir.Program) -> str | None:
    """Return the one stream that an object's samples come from; None if there are several."""
    body = program[name].body
    if isinstance(body, ir.Input):
        return body.stream
    found = {_stream(source, program) for source in ir.sources_of(body)} - {None}
    return found.pop() if len(found) == 1 else None
