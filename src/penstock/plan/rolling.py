"""Split expressions of a rolling join into aggregates over the right input and expressions over their results."""

from __future__ import annotations

from penstock.expr.nodes import Aggregate, Expr, Reduced, rewrite


def split_aggregates(expr: Expr, found: list[Aggregate] | None = None) -> tuple[Expr, list[Aggregate]]:
    """Replace each aggregate by its index in `found`; append new aggregates to `found`.

    >>> from penstock.expr.nodes import Call, Column
    >>> split_aggregates(Call("sub", (Column("p"), Aggregate("mean", (Column("q"),)))))[0]
    Call(function='sub', args=(Column(name='p'), Reduced(index=0)), options=())
    """
    aggregates = [] if found is None else found
    places = {aggregate: place for place, aggregate in enumerate(aggregates)}

    def rule(node: Expr) -> Expr:
        if not isinstance(node, Aggregate):
            return node
        if node not in places:
            places[node] = len(aggregates)
            aggregates.append(node)
        return Reduced(places[node])

    return rewrite(expr, rule), aggregates
