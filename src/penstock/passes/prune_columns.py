"""Leave out columns that nothing reads, and reductions written twice.

    #0 = ⊕(sum, v)                       →  #0 = ⊕(sum, v)
    #1 = ⊕(count, v)                        #1 = ⊕(count, v)
    #2 = ⊕(sum, v)
    total: #0; ratio: #2 / #1               total: #0; ratio: #0 / #1

Fusion creates duplicate and unused reductions. Sharing partial sums between `sum` and `mean` is done in
lowering.

    ~in0[t] = input "events" (ts, k, v, w) at ts    →  ~in0[t] = input "events" (ts, k, v) at ts
    ~s1[t] = ~in0[t] { ts; k; v; x: w + 1 }
    ~w2[t] @ … by k = { #0 = ⊕(sum, ~s1[…].v) … }      ~w2[t] @ … by k = { #0 = ⊕(sum, ~in0[…].v) … }

The output keeps its columns. Every object keeps its time column. An input keeps its sequence column if a
result depends on the order of rows of equal time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import pyarrow as pa

from penstock.analysis.graph import without_unread
from penstock.analysis.panes import depends_on_order
from penstock.expr.nodes import Column, Expr, Field, Reduced, columns_of, rewrite, walk
from penstock.ir.nodes import (
    Apply,
    Asof,
    Attach,
    Body,
    Distinct,
    Input,
    Join,
    Joined,
    Lookback,
    Merge,
    Object,
    Program,
    Reduce,
    Reduction,
    RollingJoin,
    Samples,
    Signals,
    Table,
    Top,
    Windowed,
    sources_of,
)
from penstock.ir.signals.nodes import END, Sampled, read_columns
from penstock.types.windows import WINDOW_BOUNDS, CarriedWindow, InWindow, left_column, right_column

_Body = TypeVar("_Body", bound=Windowed | RollingJoin)


def share_reductions(program: Program) -> Program:
    """Deduplicate the reductions of every windowed object."""
    return Program(tuple(_compacted(obj) for obj in program.objects), program.output)


def _compacted(this: Object) -> Object:
    match this.body:
        case Reduce() | Attach() | Lookback() | RollingJoin():
            return replace(this, body=compact(this.body))
        case _:
            return this


def compact(body: _Body) -> _Body:
    """Keep the reductions that are read, without duplicates, in their order."""
    exprs = _expressions(body)
    read = {node.index for expr in exprs for node in walk(expr) if isinstance(node, Reduced)}
    kept = tuple(dict.fromkeys(reduction for index, reduction in enumerate(body.reductions) if index in read))
    places = {reduction: place for place, reduction in enumerate(kept)}
    numbers = {index: places[body.reductions[index]] for index in read}
    fields = tuple(Field(field.name, _renumbered(field.expr, numbers)) for field in body.fields)
    return _with_reductions(body, kept, fields, numbers)


def _with_reductions(
    body: _Body, kept: tuple[Reduction, ...], fields: tuple[Field, ...], numbers: dict[int, int]
) -> _Body:
    if not isinstance(body, Reduce) or body.having is None:
        return replace(body, reductions=kept, fields=fields)
    return replace(body, reductions=kept, fields=fields, having=_renumbered(body.having, numbers))


def _expressions(body: Windowed | RollingJoin) -> tuple[Expr, ...]:
    having = body.having if isinstance(body, Reduce) else None
    return (*(field.expr for field in body.fields), *(() if having is None else (having,)))


def _renumbered(expr: Expr, numbers: dict[int, int]) -> Expr:
    def rule(node: Expr) -> Expr:
        return Reduced(numbers[node.index]) if isinstance(node, Reduced) else node

    return rewrite(expr, rule)


_NONE: frozenset[str] = frozenset()


def prune_columns(program: Program) -> Program:
    """Narrow every object to the columns its readers need, then drop identities."""
    return _aligned(_without_identities(_whole_samples(_narrowed(program))))


# --- narrowing --------------------------------------------------------------------------------------


def _narrowed(program: Program) -> Program:
    """Visit objects from the output to the inputs, so that the needs of all readers are known at each object."""
    ordered = _depends_on_order(program)
    wanted = {obj.name: _NONE for obj in program.objects}
    wanted[program.output] = frozenset(program[program.output].schema.names)
    objects: list[Object] = []
    for obj in reversed(program.objects):
        narrow = _narrow(obj, wanted[obj.name] | _own_needs(obj, ordered=ordered), ordered=ordered)
        objects.append(narrow)
        for source in sources_of(narrow.body):
            wanted[source] |= _needs(narrow, program[source])
    return Program(tuple(reversed(objects)), program.output)


def _whole_samples(program: Program) -> Program:
    """Give objects that select whole samples (Distinct, Top) the columns of their narrowed source."""
    schemas: dict[str, pa.Schema] = {}
    objects: list[Object] = []
    for obj in program.objects:
        chooses = isinstance(obj.body, Distinct | Top)
        schemas[obj.name] = schemas[sources_of(obj.body)[0]] if chooses else obj.schema
        objects.append(replace(obj, schema=schemas[obj.name]))
    return Program(tuple(objects), program.output)


def _own_needs(this: Object, *, ordered: bool) -> frozenset[str]:
    """Return the columns an object keeps regardless of its readers."""
    match this.body:
        case Input(sequence=sequence) if ordered and sequence is not None:
            return frozenset({this.time.column, sequence})
        case Distinct(subset=subset):
            return frozenset({this.time.column, *subset})
        case Top(by=by):
            return frozenset({this.time.column, by}) | {*WINDOW_BOUNDS}
        case Apply():  # the columns of a user's function cannot be narrowed
            return frozenset(this.schema.names)
        case Signals():  # without its end, an interval is emitted earlier; the other columns stay
            return frozenset(this.schema.names) - {END}
        case _:
            return frozenset({this.time.column})


def _narrow(this: Object, wanted: frozenset[str], *, ordered: bool) -> Object:
    whole = wanted.issuperset(this.schema.names)
    schema = this.schema if whole else pa.schema([field for field in this.schema if field.name in wanted])
    match this.body:
        case Samples() as body:
            return replace(this, body=replace(body, fields=_wanted(body.fields, wanted)), schema=schema)
        case Reduce() | Attach() | Lookback() as body:
            narrow = compact(replace(body, fields=_wanted(body.fields, wanted)))
            return replace(this, body=narrow, schema=schema)
        case Join() | Asof() as body:
            return replace(this, body=replace(body, fields=_wanted(body.fields, wanted)), schema=schema)
        case RollingJoin() as body:
            narrow_join = compact(replace(body, fields=_wanted(body.fields, wanted)))
            return replace(this, body=narrow_join, schema=schema)
        case Input() as body if not ordered:
            return replace(this, body=replace(body, sequence=None), schema=schema)
        case _:
            return replace(this, schema=schema)


def _wanted(fields: tuple[Field, ...], wanted: frozenset[str]) -> tuple[Field, ...]:
    return tuple(field for field in fields if field.name in wanted)


def _needs(this: Object, source: Object) -> frozenset[str]:
    """Return the columns that a narrowed object reads from one of its sources."""
    match this.body:
        case Samples(where=where, fields=fields):
            return _read(where, *(field.expr for field in fields))
        case Reduce() as body:
            return _window_needs(body, source)
        case Attach() as body:
            fields_read = _read(*(field.expr for field in body.fields))
            return _window_needs(body, source) | (
                fields_read if _carried(body) else fields_read - {*WINDOW_BOUNDS}
            )
        case Lookback() as body:
            return _window_needs(body, source) | _read(*(field.expr for field in body.fields))
        case Apply():
            return frozenset(source.schema.names)
        case Signals() as body:
            return sampled_columns(body, source)
        case Join() | Asof() | RollingJoin() as body:
            return _join_needs(body, source)
        case _:
            return frozenset(this.schema.names)


def sampled_columns(body: Signals, source: Object) -> frozenset[str]:
    """Return the columns of a source that signals sample."""
    places = {str(place) for place, name in enumerate(body.sources) if name == source.name}
    taken = [obj.body for obj in body.program.objects if isinstance(obj.body, Sampled)]
    return frozenset({source.time.column}).union(
        *(read_columns(sampled) for sampled in taken if sampled.input in places)
    )


def _join_needs(body: Joined, source: Object) -> frozenset[str]:
    """Return the columns that a join reads from one of its sides, or from both if they are the same object."""
    found = _NONE
    sides = ((body.left, left_column("")), (body.right, right_column("")))
    for side, (name, prefix) in enumerate(sides):
        if name == source.name:
            found |= {pair[side] for pair in body.on} | {source.time.column} | _side_needs(body, side, prefix)
    return found & frozenset(source.schema.names)


def _side_needs(body: Joined, side: int, prefix: str) -> frozenset[str]:
    fields = _read(*(field.expr for field in body.fields))
    if isinstance(body, RollingJoin):
        return (
            _NONE.union(*(_reduction_needs(reduction) for reduction in body.reductions)) if side else fields
        )
    where = _read(body.where) if isinstance(body, Join) else _NONE
    carried = isinstance(body, Join) and body.pairing == InWindow(CarriedWindow(), CarriedWindow())
    own = {name.removeprefix(prefix) for name in fields | where if name.startswith(prefix)}
    return frozenset(own) | (frozenset(WINDOW_BOUNDS) if carried else _NONE)


def _window_needs(body: Windowed, source: Object) -> frozenset[str]:
    keys = _read(body.where, *(key.expr for key in body.keys))
    bounds = (
        {*WINDOW_BOUNDS} | _order_needs(body, source) if _carried(body) else frozenset({source.time.column})
    )
    return keys.union(bounds, *(_reduction_needs(reduction) for reduction in body.reductions))


def _reduction_needs(reduction: Reduction) -> frozenset[str]:
    return _read(reduction.where, *reduction.args)


def _order_needs(body: Windowed, source: Object) -> frozenset[str]:
    """Return the time column if the order of samples in a carried window matters."""
    return frozenset({source.time.column} & set(source.schema.names)) if depends_on_order(body) else _NONE


def _carried(body: Windowed) -> bool:
    return not isinstance(body, Lookback) and isinstance(body.domain, CarriedWindow)


def _read(*exprs: Expr | None) -> frozenset[str]:
    return _NONE.union(*(columns_of(operand) for operand in exprs if operand is not None))


def _depends_on_order(program: Program) -> bool:
    """Return whether a result, or the order of its rows, can depend on the order of rows of equal time."""
    return any(depends_on_order(obj.body) for obj in program.objects) or _order_is_given(
        program.output, program
    )


def _order_is_given(name: str, program: Program) -> bool:
    """Return whether results are in row order: those of look-backs and joins, through operators that keep the order."""
    reached = {name}
    for obj in reversed(program.objects):
        match obj.body:
            case Lookback() | RollingJoin() | Join() if obj.name in reached:
                return True
            case Samples() | Merge() | Distinct() | Top() if obj.name in reached:
                reached.update(sources_of(obj.body))
    return False


def _aligned(program: Program) -> Program:
    """Give every source of a union the same columns, if a source keeps more for another reader."""
    objects: list[Object] = []
    for obj in program.objects:
        match obj.body:
            case Merge(sources=sources):
                branches = [_branch(obj, index, program[name]) for index, name in enumerate(sources)]
                objects.extend(branch for branch in branches if branch.name not in sources)
                objects.append(replace(obj, body=Merge(tuple(branch.name for branch in branches))))
            case _:
                objects.append(obj)
    return Program(tuple(objects), program.output)


def _branch(merge: Object, index: int, source: Object) -> Object:
    """Project a source of a union to the union's columns, unless it has exactly those."""
    if source.schema.names == merge.schema.names:
        return source
    fields = tuple(Field(name, Column(name)) for name in merge.schema.names)
    return Object(f"{merge.name}_only{index}", Samples(source.name, None, fields), merge.schema, source.time)


# --- identities -------------------------------------------------------------------------------------


def _without_identities(program: Program) -> Program:
    """Redirect the readers of an object that duplicates its source to that source."""
    whole = {program.output} | {
        name
        for obj in program.objects
        if isinstance(obj.body, Distinct | Top)
        for name in sources_of(obj.body)
    }
    instead: dict[str, str] = {}
    objects: dict[str, Object] = {}
    for obj in program.objects:
        moved = replace(obj, body=_redirected(obj.body, instead))
        sources = sources_of(moved.body)
        if len(sources) == 1 and _repeats(moved, objects[sources[0]], whole=obj.name in whole):
            instead[obj.name] = sources[0]
        else:
            objects[obj.name] = moved
    return without_unread(Program(tuple(objects.values()), instead.get(program.output, program.output)))


def _repeats(this: Object, before: Object, *, whole: bool) -> bool:
    """Return whether an object has the samples of another, and also the same columns if `whole`."""
    match this.body:
        case Samples(where=None, fields=fields):
            same = all(field.expr == Column(field.name) for field in fields)
        case Merge(sources=(_,)):
            same = True
        case _:
            return False
    clock = this.time.column == before.time.column and this.time.shift == before.time.shift
    return same and clock and (not whole or this.schema.equals(before.schema))


def _redirected(body: Body, instead: dict[str, str]) -> Body:
    match body:
        case Input() | Table():
            return body
        case Merge(sources=several) | Signals(sources=several):
            return replace(body, sources=tuple(instead.get(name, name) for name in several))
        case Join() | Asof() | RollingJoin():
            left, right = (instead.get(name, name) for name in (body.left, body.right))
            return replace(body, left=left, right=right)
        case _:
            return replace(body, source=instead.get(body.source, body.source))
