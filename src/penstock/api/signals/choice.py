"""`pk.when` between signals."""

from __future__ import annotations

from penstock.api.expr import Expr, node_of
from penstock.api.signals.graph import Graph, pointwise
from penstock.api.signals.signal import Signal
from penstock.expr import nodes

Branches = tuple[tuple[object, object], ...]


class SignalWhen:
    """A condition without its value; `then` follows."""

    __slots__ = ("_branches", "_condition")

    def __init__(self, branches: Branches, condition: object) -> None:
        self._branches = branches
        self._condition = condition

    def then(self, value: object) -> SignalThen:
        """Set the value, a signal or a constant, where the condition is true."""
        return SignalThen((*self._branches, (self._condition, value)))


class SignalThen(Signal):
    """A choice between signals; undefined where no condition is true, unless `otherwise` is called."""

    __slots__ = ("_branches",)

    def __init__(self, branches: Branches) -> None:
        self._branches = branches
        self._rows = None

    @property
    def graph(self) -> Graph:
        """The graph of the choice without `otherwise`."""
        return self.end().graph

    @property
    def name(self) -> str:
        """The name of the choice without `otherwise` in the graph."""
        return self.end().name

    def when(self, condition: object) -> SignalWhen:
        """Add a condition for instants where all earlier conditions are not true."""
        return SignalWhen(self._branches, condition)

    def otherwise(self, value: object) -> Signal:
        """Set the value where no condition is true; the result is undefined where a condition is."""
        return _chosen(self._branches, value)

    def end(self) -> Signal:
        """Leave the signal undefined where no condition is true."""
        return _chosen(self._branches, None)


def _chosen(branches: Branches, otherwise: object) -> Signal:
    def choice(*values: object) -> Expr:
        *pairs, last = values
        parts = list(zip(pairs[0::2], pairs[1::2], strict=True))
        case = nodes.Case(tuple((node_of(c), node_of(v)) for c, v in parts), node_of(last))
        known = [nodes.Call("is_not_null", (node_of(c),)) for c, _ in parts]
        whole: nodes.Expr = known[0]
        for condition in known[1:]:
            whole = nodes.Call("and", (whole, condition))
        return Expr(nodes.Case(((whole, case),), node_of(None)))

    return pointwise(choice, [part for pair in branches for part in pair] + [otherwise], strict=False)
