"""Find what tasks exchange at slice boundaries where a halo of fixed time does not suffice.

    ~w1 = … over ~in0 by k in sessions of 10   →  Sessions(gap=10, keys=("k",), exact=True)
    ~w1 = … over ~in0 in windows of 5 rows     →  Counts(size=5, every=5)

* The end of a session is not known at planning time. The task whose slice contains the start of a session reads on
  until the session ends. Other tasks detect from a halo of one gap that the session is not theirs.
* A count window is identified by its row numbers, which file footers give if no row is filtered out.

This analysis does not change the program.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.analysis.partition_keys import partition_keys
from penstock.expr.nodes import Column
from penstock.ir import nodes as ir
from penstock.types.windows import WINDOW_START, Count, Session


@dataclass(frozen=True, slots=True)
class Sessions:
    """Sessions with a gap, keyed by columns of the input. `exact`: every input row belongs to a session."""

    gap: int
    keys: tuple[str, ...]
    exact: bool

    def __str__(self) -> str:
        return "as far as sessions go on that start there"


@dataclass(frozen=True, slots=True)
class Counts:
    """Windows of `size` rows, over all rows of the input."""

    size: int
    every: int

    def __str__(self) -> str:
        return f"{self.size - 1} rows before their last"


def slice_borders(program: ir.Program) -> Sessions | Counts | None:
    """Return the boundary requirement of a program; None if it is neither sessions nor counts."""
    output = program[program.output]
    if not isinstance(output.body, ir.Reduce) or not _plain(program, output.body.source):
        return None
    everything = output.body.where is None and _keeps_all(program, output.body.source)
    match output.body:
        case ir.Reduce(domain=Session(gap=gap), keys=keys) if WINDOW_START in output.schema.names:
            columns = _columns(program) if keys else ()
            return None if columns is None else Sessions(gap, columns, everything)
        case ir.Reduce(domain=Count(size=size, every=every), keys=(), having=None) if everything:
            return Counts(size, every)
        case _:
            return None


def _columns(program: ir.Program) -> tuple[str, ...] | None:
    """Return the key columns; None if a key is computed."""
    found = partition_keys(program)
    body = program[program.output].body
    if not isinstance(found, dict) or not isinstance(body, ir.Reduce):
        return None
    (keys,) = found.values()
    names = tuple(key.name for key in keys if isinstance(key, Column))
    return names if len(names) == len(body.keys) else None


def _plain(program: ir.Program, name: str) -> bool:
    """Return whether an object's rows are those of one input, with unchanged times."""
    this = program[name]
    match this.body:
        case ir.Input():
            return not this.time.implied
        case ir.Samples(source=source, fields=fields):
            clock = next((field.expr for field in fields if field.name == this.time.column), None)
            return clock in {None, Column(program[source].time.column)} and _plain(program, source)
        case _:
            return False


def _keeps_all(program: ir.Program, name: str) -> bool:
    match program[name].body:
        case ir.Samples(source=source, where=where):
            return where is None and _keeps_all(program, source)
        case _:
            return True
