"""Fuse expressions over the same samples into one (TiLT, section 5.2), also across windows.

    ~s1[t] = ~in0[t] where kind == "view" { ts; k; x: v + 1 }     →  ~w3[t] @ size 10s every 10s by k = {
    ~w2[t] @ size 10s every 10s by k = {                               where kind == "view"
      #0 = ⊕(sum, ~s1[t - 10s : t].x)                                  #0 = ⊕(sum, ~in0[t - 10s : t].(v + 1))
      window_start; window_end; k; total: #0                           window_start; window_end; k; total: #0
    }                                                                  having #0 > 3
    ~w3[t] = ~w2[t] where total > 3 { … }                            }

Every column reference is replaced by its defining expression. Rows that a filter drops never reach the
expressions after it, so no new errors occur. Fusion stops where duplicated expressions would grow the
program by more than `GROWTH` nodes.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Container, Iterable
from dataclasses import replace

from penstock.analysis.graph import (
    Definitions,
    Redefinitions,
    definitions,
    inlined,
    inlined_fields,
    inlined_reduction,
    without_unread,
)
from penstock.analysis.predicates import is_total, then
from penstock.expr.nodes import Column, Expr, Field, Literal, columns_of, occurrences
from penstock.ir.nodes import (
    Attach,
    Merge,
    Object,
    Program,
    Reduce,
    Reduction,
    Samples,
    result_scope,
    result_types,
)
from penstock.types.time import Time
from penstock.types.windows import WINDOW_END, WINDOW_START, CarriedWindow

GROWTH = 32


def fuse_samples(program: Program) -> Program:
    """Fuse each object with its sources until none is left to fuse with; sources are complete before their readers."""
    graph = Redefinitions(program)
    windowed = {obj.body.source for obj in program.objects if isinstance(obj.body, Reduce | Attach)}
    done: list[Object] = []
    waiting = deque(program.objects)
    while waiting:
        this = waiting.popleft()
        fused = _fused(this, graph, windowed)
        if fused is None:
            done.append(this)
        else:
            graph.redefine(this, fused)
            waiting.extendleft(reversed(fused))
    return without_unread(Program(tuple(done), program.output))


def _fused(this: Object, graph: Redefinitions, windowed: Container[str]) -> tuple[Object, ...] | None:
    """Redefine an object without its source; None if fusion does not pay or is not sound."""
    match this.body:
        case Samples(source=source) as body:
            return _fused_samples(this, body, graph, feeds_window=this.name in windowed)
        case Reduce(source=source) | Attach(source=source):
            before = graph[source]
            if isinstance(before.body, Samples) and _affordable(this, before, graph):
                return _into_window(this, this.body, before, graph[before.body.source])
    return None


def _fused_samples(
    this: Object, body: Samples, graph: Redefinitions, *, feeds_window: bool
) -> tuple[Object, ...] | None:
    before = graph[body.source]
    if not _affordable(this, before, graph):
        return None
    match before.body:
        case Samples():
            return _after_samples(this, body, before.body, graph[before.body.source])
        case Reduce():
            return _after_reduce(this, body, before, graph[before.body.source])
        case Attach():
            return _after_attach(this, body, before)
        case Merge() if not feeds_window:  # a window absorbs the expression once
            return _into_branches(this, body, before, graph)
        case _:
            return None


# --- fusions ----------------------------------------------------------------------------------------


def _after_samples(this: Object, body: Samples, before: Samples, origin: Object) -> tuple[Object]:
    known = definitions(before.fields)
    where = inlined(body.where, known)
    total = where is None or is_total(where, origin.schema)
    fields = inlined_fields(body.fields, known)
    return (replace(this, body=Samples(before.source, then(before.where, where, total=total), fields)),)


def _into_window(
    this: Object, body: Reduce | Attach, before: Object, origin: Object
) -> tuple[Object, ...] | None:
    """Evaluate keys and arguments on the samples before a projection or filter."""
    samples = before.body
    assert isinstance(samples, Samples)
    known = definitions(samples.fields)
    if not _same_time(before, samples, origin) or not _same_windows(body, known):
        return None
    where = inlined(body.where, known)
    total = where is None or is_total(where, origin.schema)
    fused = replace(
        body,
        source=samples.source,
        keys=inlined_fields(body.keys, known),
        reductions=tuple(inlined_reduction(reduction, known) for reduction in body.reductions),
        where=then(samples.where, where, total=total),
    )
    if isinstance(fused, Attach):
        inner = {name: expr for name, expr in known.items() if not (_is_bound(name) and not _carried(body))}
        fused = replace(fused, fields=inlined_fields(body.fields, inner))
    return (replace(this, body=fused),)


def _after_reduce(this: Object, body: Samples, before: Object, origin: Object) -> tuple[Object, ...] | None:
    """Merge a projection into the window's fields, and a filter into its `having`."""
    reduce = before.body
    assert isinstance(reduce, Reduce)
    if not _same_time(this, body, before):
        return None
    known = definitions(reduce.fields)
    having = inlined(body.where, known)
    scope, types = result_scope(reduce, origin), result_types(reduce, origin)
    total = having is None or is_total(having, scope, types)
    fields = inlined_fields(body.fields, known)
    return (
        replace(this, body=replace(reduce, fields=fields, having=then(reduce.having, having, total=total))),
    )


def _after_attach(this: Object, body: Samples, before: Object) -> tuple[Object, ...] | None:
    """Merge a projection into the fields; keep the filter after it, because it must not change the reductions."""
    attach = before.body
    assert isinstance(attach, Attach)
    if body.where is not None or not _same_time(this, body, before):
        return None
    fields = inlined_fields(body.fields, definitions(attach.fields))
    return (replace(this, body=replace(attach, fields=fields)),)


def _into_branches(
    this: Object, body: Samples, before: Object, graph: Redefinitions
) -> tuple[Object, ...] | None:
    """Push a projection into each branch of a union that can absorb it."""
    merge = before.body
    assert isinstance(merge, Merge)
    branches = [graph[name] for name in merge.sources]
    if not _same_time(this, body, before):
        return None
    if not any(isinstance(branch.body, Samples | Reduce) for branch in branches):
        return None
    if _size_of(body) * (len(branches) - 1) > GROWTH:
        return None
    pushed = tuple(
        Object(f"{this.name}_{index}", replace(body, source=branch.name), this.schema, _renamed(branch, this))
        for index, branch in enumerate(branches)
    )
    return (*pushed, replace(this, body=Merge(tuple(object_.name for object_ in pushed))))


def _renamed(branch: Object, this: Object) -> Time:
    return replace(branch.time, column=this.time.column)


# --- soundness --------------------------------------------------------------------------------------


def _same_time(this: Object, body: Samples, before: Object) -> bool:
    """Return whether samples keep their time, possibly renamed; a dropped time column must be unread."""
    known = definitions(body.fields)
    kept = known.get(this.time.column)
    return kept is None or (kept == Column(before.time.column) and this.time.shift == before.time.shift)


def _same_windows(body: Reduce | Attach, known: Definitions) -> bool:
    """Return whether the names of the window bounds have the same meaning before the projection."""
    if isinstance(body.domain, CarriedWindow):
        return all(known.get(name) == Column(name) for name in (WINDOW_START, WINDOW_END))
    # On a grid the bounds shadow source columns: substitution must not make a field read a column of that name.
    named = (
        {name for field in body.fields for name in columns_of(field.expr)}
        if isinstance(body, Attach)
        else set()
    )
    captured = (columns_of(known[name]) for name in named if name in known and not _is_bound(name))
    return not any(columns & {WINDOW_START, WINDOW_END} for columns in captured)


def _is_bound(name: str) -> bool:
    return name in {WINDOW_START, WINDOW_END}


def _carried(body: Reduce | Attach) -> bool:
    return isinstance(body.domain, CarriedWindow)


# --- cost -------------------------------------------------------------------------------------------


def _affordable(this: Object, before: Object, graph: Redefinitions) -> bool:
    """Return whether fusion duplicates few nodes and no reduction."""
    others = graph.readers[before.name] - 1
    match before.body:
        case Samples() as body:
            return _growth(this, body.fields) + (others and others * _size_of(body)) <= GROWTH
        case Reduce(fields=fields) | Attach(fields=fields):
            return others == 0 and _growth(this, fields) <= GROWTH
        case _:
            return others == 0


def _growth(this: Object, fields: tuple[Field, ...]) -> int:
    """Count the nodes duplicated because a column is referenced more than once."""
    uses: Counter[str] = Counter()
    for node, count in occurrences(*_expressions(this)):
        if isinstance(node, Column):
            uses[node.name] += count
    return sum((uses[field.name] - 1) * _size(field.expr) for field in fields if uses[field.name] > 1)


def _expressions(this: Object) -> Iterable[Expr]:
    match this.body:
        case Samples(where=where, fields=fields):
            return (*(field.expr for field in fields), *_given(where))
        case Reduce(keys=keys, reductions=reductions, where=where):
            return (*(key.expr for key in keys), *_arguments(reductions), *_given(where))
        case Attach(keys=keys, reductions=reductions, where=where, fields=fields):
            named = (key.expr for key in (*keys, *fields))
            return (*named, *_arguments(reductions), *_given(where))
        case _:
            return ()


def _arguments(reductions: tuple[Reduction, ...]) -> Iterable[Expr]:
    return (expr for reduction in reductions for expr in (*reduction.args, *_given(reduction.where)))


def _given(expr: Expr | None) -> tuple[Expr, ...]:
    return () if expr is None else (expr,)


def _size_of(body: Samples) -> int:
    return sum(_size(expr) for expr in (*(field.expr for field in body.fields), *_given(body.where)))


def _size(expr: Expr) -> int:
    """Count the nodes that compute something: columns and constants cost nothing."""
    if isinstance(expr, Column | Literal):
        return 0
    return sum(count for node, count in occurrences(expr) if not isinstance(node, Column | Literal))
