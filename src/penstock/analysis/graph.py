"""Questions about the graph of a program: its readers, redefinitions, substitution, readers of times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

from penstock.expr.nodes import Cast, Expr, Field, Literal, substitute
from penstock.ir import nodes as ir
from penstock.ir.nodes import Object, Program, Reduction, Signals, sources_of
from penstock.ir.signals import nodes as temporal
from penstock.types.windows import Session

# --- Reader counts of the object graph, and replacement of definitions.


def readers(program: Program) -> Counter[str]:
    """Count the readers of each object; the program's output counts as one reader."""
    return Counter([*(name for obj in program.objects for name in sources_of(obj.body)), program.output])


def redefine(program: Program, name: str, definitions: Iterable[Object]) -> Program:
    """Replace one object by several, the last of which has its name, and drop unread objects."""
    objects: list[Object] = []
    for obj in program.objects:
        objects.extend(definitions if obj.name == name else (obj,))
    return without_unread(Program(tuple(objects), program.output))


def without_unread(program: Program) -> Program:
    """Drop the objects the output does not depend on."""
    wanted = {program.output}
    for obj in reversed(program.objects):
        if obj.name in wanted:
            wanted.update(sources_of(obj.body))
    return Program(tuple(obj for obj in program.objects if obj.name in wanted), program.output)


class Redefinitions:
    """A program whose objects are replaced one by one, each in constant time, with the reader counts of every moment."""

    def __init__(self, program: Program) -> None:
        self.readers = readers(program)
        self._objects = {obj.name: obj for obj in program.objects}

    def __getitem__(self, name: str) -> Object:
        return self._objects[name]

    def redefine(self, this: Object, definitions: Iterable[Object]) -> None:
        """Replace an object by several, the last of which has its name."""
        for definition in definitions:
            self._objects[definition.name] = definition
            self.readers.update(sources_of(definition.body))
        self._release(sources_of(this.body))

    def _release(self, sources: tuple[str, ...]) -> None:
        """Count readers down; an object without readers reads nothing."""
        waiting = list(sources)
        while waiting:
            name = waiting.pop()
            self.readers[name] -= 1
            if not self.readers[name]:
                waiting += sources_of(self._objects[name].body)


def with_signals(program: Program, rewrite: Callable[[temporal.Program], temporal.Program]) -> Program:
    """Rewrite the temporal program of every signal."""
    objects = [
        replace(obj, body=replace(obj.body, program=rewrite(obj.body.program)))
        if isinstance(obj.body, Signals)
        else obj
        for obj in program.objects
    ]
    return Program(tuple(objects), program.output)


# --- Replace the columns that a reader references by their definitions, without changing any type.

Definitions = dict[str, Expr]


def definitions(fields: Iterable[Field]) -> Definitions:
    """Map each column to its defining expression."""
    return {field.name: opaque(field.expr) for field in fields}


def opaque(expr: Expr) -> Expr:
    """Wrap an integer literal in a cast, because type rules treat literals differently from columns.

    `u + 1` is unsigned when `u` is, but `u + c` is signed, even if `c` is always 1.
    """
    match expr:
        case Literal(value=bool()):
            return expr
        case Literal(value=int(), type=dtype):
            return Cast(expr, dtype)
        case _:
            return expr


def inlined(expr: Expr | None, known: Definitions) -> Expr | None:
    """Substitute in a predicate that may be absent."""
    return None if expr is None else substitute(expr, known)


def inlined_fields(fields: Iterable[Field], known: Definitions) -> tuple[Field, ...]:
    """Substitute in every field, keeping its name."""
    return tuple(Field(field.name, substitute(field.expr, known)) for field in fields)


def inlined_reduction(reduction: Reduction, known: Definitions) -> Reduction:
    """Substitute in a reduction's arguments and predicate."""
    args = tuple(substitute(arg, known) for arg in reduction.args)
    return replace(reduction, args=args, where=inlined(reduction.where, known))


# --- Find the later stages that depend on an object's time or arrival order.


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
