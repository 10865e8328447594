"""Substitute one expression into another: the fusion of two temporal expressions (TiLT, section 5.2)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from penstock.expr import nodes as ex
from penstock.expr.nodes import Field
from penstock.ir.signals.nodes import At, Expression, WindowReduction, at


@dataclass(slots=True)
class FusedAccesses:
    """The accesses and reductions of the fused expression, deduplicated."""

    accesses: list[At] = field(default_factory=list)
    reductions: list[WindowReduction] = field(default_factory=list)

    def access(self, wanted: At) -> int:
        if wanted not in self.accesses:
            self.accesses.append(wanted)
        return self.accesses.index(wanted)

    def reduction(self, wanted: WindowReduction) -> int:
        if wanted not in self.reductions:
            self.reductions.append(wanted)
        return self.reductions.index(wanted)

    def moved(self, body: Expression, shift: int) -> dict[str, ex.Expr]:
        """Add the accesses and reductions of an expression, shifted in time; return its fields over them."""
        accesses = [self.access(At(access.source, access.shift + shift)) for access in body.accesses]
        reductions = [
            self.reduction(replace(reduction, shift=reduction.shift + shift)) for reduction in body.reductions
        ]

        def rule(node: ex.Expr) -> ex.Expr:
            match node:
                case ex.Column(name=name):
                    place, _, column = name.partition(".")
                    return ex.Column(at(accesses[int(place)], column))
                case ex.Reduced(index=index):
                    return ex.Reduced(reductions[index])
                case _:
                    return node

        return {computed.name: ex.rewrite(computed.expr, rule) for computed in body.fields}


def composed(outer: Expression, inner: dict[str, Expression]) -> Expression:
    """Replace accesses to the objects in `inner` by their definitions.

    >>> from penstock.expr.nodes import Call, Column
    >>> difference = Expression((At("a"), At("b")), (), (Field("v", Call("sub", (Column("0.v"), Column("1.v")))),))
    >>> moved = Expression((At("a", 5),), (), (Field("v", Column("0.v")),))
    >>> made = composed(difference, {"b": moved})
    >>> made.accesses, made.fields[0].expr == Call("sub", (Column("0.v"), Column("1.v")))
    ((At(source='a', shift=0), At(source='a', shift=5)), True)
    """
    merged = FusedAccesses()
    columns: dict[str, ex.Expr] = {}
    for i, access in enumerate(outer.accesses):
        if access.source in inner:
            made = merged.moved(inner[access.source], access.shift)
            columns |= {at(i, name): expr for name, expr in made.items()}
        else:
            columns |= _renumbered(outer, i, merged.access(access))
    reduced = [merged.reduction(reduction) for reduction in outer.reductions]

    def rule(node: ex.Expr) -> ex.Expr:
        match node:
            case ex.Column(name=name):
                return columns[name]
            case ex.Reduced(index=index):
                return ex.Reduced(reduced[index])
            case _:
                return node

    fields = tuple(Field(column.name, ex.rewrite(column.expr, rule)) for column in outer.fields)
    return Expression(tuple(merged.accesses), tuple(merged.reductions), fields)


def _renumbered(outer: Expression, old: int, new: int) -> dict[str, ex.Expr]:
    prefix = at(old, "")
    used = {name for column in outer.fields for name in ex.columns_of(column.expr) if name.startswith(prefix)}
    return {name: ex.Column(at(new, name.removeprefix(prefix))) for name in used}
