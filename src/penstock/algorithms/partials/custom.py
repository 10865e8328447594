"""A custom aggregate as a monoid: its expressions, lowered over the words of its state.

The words of a state are

    touched        whether a row has been added: `merge` applies only to states with rows, never to `init`
    a value        for each component
    its validity   for each component that can become null
    failed         whether an integer overflowed 64 bits, where that can happen: an error on reading
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.algorithms.expressions.cells import Cell, computed_type
from penstock.algorithms.expressions.lowering import Lowering
from penstock.algorithms.monoids import Monoid, StateField, Values
from penstock.caches import CACHES
from penstock.errors import UnsupportedError
from penstock.expr import nodes as ex
from penstock.expr.custom import Definition, argument_column, other_column, state_column
from penstock.loop.build import KernelBuilder
from penstock.loop.nodes import BOOL, U8, Type, Value, Var, const, select

Cells = Mapping[str, Cell]


def custom_monoid(definition: Definition) -> Monoid:
    """Build the monoid of a typed definition."""
    layout = layout_of(definition)
    assert not (definition.undoes and layout.nullable), "a null could not be taken out again"
    return Monoid(
        "custom",
        layout.states,
        lambda k, state, values: layout.step(k, definition.add, state, values),
        layout.merge,
        remove=_removal(layout) if definition.undoes else None,
        ordered=definition.merge is None or not definition.commutative,
    )


def _removal(layout: CustomStateLayout) -> Callable[[KernelBuilder, Values, Values], Values]:
    exprs = layout.definition.remove
    assert exprs is not None
    return lambda k, state, values: layout.step(k, exprs, state, values)


def result_cell(
    k: KernelBuilder, definition: Definition, state: Values, fail: Callable[[Value], None]
) -> Cell:
    """Compute the result from a state."""
    layout = layout_of(definition)
    if layout.fails:
        fail(layout.failed(state))
    lowering = _lowering(k, definition, layout.components(state, state_column), fail)
    return lowering.lower(definition.result)


@CACHES.results(most=256)
def layout_of(definition: Definition) -> CustomStateLayout:
    """Find the components that can become null, and whether any step can fail, by lowering on a scratch kernel."""
    nullable = frozenset(place for place, literal in enumerate(definition.init) if literal.value is None)
    while True:
        found, fails = _probed(CustomStateLayout(definition, nullable, fails=False))
        if found <= nullable:
            return CustomStateLayout(definition, nullable, fails)
        nullable |= found


def _probed(layout: CustomStateLayout) -> tuple[frozenset[int], bool]:
    """Lower every step once; return the components that have a validity, and whether a step can fail."""
    k = KernelBuilder("scratch")
    definition = layout.definition
    errors: list[Value] = []
    words = tuple(Var("word", state.type) for state in layout.states)
    cells = layout.components(words, state_column) | layout.components(words, other_column)
    cells |= _arguments(definition, [Var("arg", computed_type(arg)) for arg in definition.args])
    nullable: set[int] = set()
    for exprs in definition.steps.values():
        made = _lowered(k, definition, exprs, cells, errors)
        nullable |= {place for place, cell in enumerate(made) if cell.valid is not None}
    return frozenset(nullable), bool(errors)


@dataclass(frozen=True)
class CustomStateLayout:
    """The layout of a definition's state in words."""

    definition: Definition
    nullable: frozenset[int]
    fails: bool

    @property
    def states(self) -> tuple[StateField, ...]:
        inits = [literal.value for literal in self.definition.init]
        values = [
            StateField(_stored(computed_type(dtype)), _number(init))
            for init, dtype in zip(inits, self.definition.state, strict=True)
        ]
        valid = [StateField(U8, int(inits[place] is not None)) for place in sorted(self.nullable)]
        return (StateField(U8, 0), *values, *valid, *([StateField(U8, 0)] if self.fails else []))

    def components(self, words: Values, column: Callable[[int], ex.Column]) -> dict[str, Cell]:
        """Read the components of a state, by their column names in expressions."""
        flags = {place: words[self._flag(place)].ne(0) for place in self.nullable}
        return {
            column(place).name: Cell(_loaded(words[1 + place], dtype), flags.get(place))
            for place, dtype in enumerate(self.definition.state)
        }

    def failed(self, words: Values) -> Value:
        return words[-1].ne(0)

    def _flag(self, place: int) -> int:
        return 1 + len(self.definition.state) + sorted(self.nullable).index(place)

    def step(self, k: KernelBuilder, exprs: Sequence[ex.Expr], state: Values, values: Values) -> Values:
        """Add or remove a row."""
        cells = self.components(state, state_column) | _arguments(self.definition, values)
        return self._words(k, exprs, cells, [self.failed(state)] if self.fails else [])

    def merge(self, k: KernelBuilder, a: Values, b: Values) -> Values:
        """Merge two states; a state without rows is the identity."""
        exprs = self.definition.merge
        if exprs is None:
            raise UnsupportedError(
                f"the aggregate defined at {self.definition.place} cannot be computed from parts of a window; "
                "give it merge="
            )
        cells = self.components(a, state_column) | self.components(b, other_column)
        before = [self.failed(a), self.failed(b)] if self.fails else []
        both = self._words(k, exprs, cells, before)
        return tuple(
            select(a[0].eq(0), y, select(b[0].eq(0), x, new)) for x, y, new in zip(a, b, both, strict=True)
        )

    def _words(self, k: KernelBuilder, exprs: Sequence[ex.Expr], cells: Cells, errors: list[Value]) -> Values:
        made = _lowered(k, self.definition, exprs, cells, errors)
        values = [cell.value.to(_stored(cell.value.type)) for cell in made]
        there = [made[place].valid for place in sorted(self.nullable)]
        valid = [const(1, U8) if value is None else value.to(U8) for value in there]
        return (const(1, U8), *values, *valid, *([_any(k, errors).to(U8)] if self.fails else []))


def _lowered(
    k: KernelBuilder, definition: Definition, exprs: Sequence[ex.Expr], cells: Cells, errors: list[Value]
) -> list[Cell]:
    """Lower the components of a new state; append its error conditions to `errors`."""
    lowering = _lowering(k, definition, cells, errors.append)
    return [lowering.lower_as(expr, dtype) for expr, dtype in zip(exprs, definition.state, strict=True)]


def _lowering(
    k: KernelBuilder, definition: Definition, cells: Cells, fail: Callable[[Value], None]
) -> Lowering:
    return Lowering(k, definition.scope, lambda name: cells[name], fail, _no_text)


def _arguments(definition: Definition, values: Sequence[Value]) -> dict[str, Cell]:
    return {
        argument_column(place).name: Cell(_loaded(value, dtype))
        for place, (value, dtype) in enumerate(zip(values, definition.args, strict=False))
    }


def _any(k: KernelBuilder, conditions: Sequence[Value]) -> Value:
    found: Value = const(False, BOOL)
    for condition in conditions:
        found = k.var("failed", found | condition)
    return found


def _stored(type: Type) -> Type:
    """The type in memory: booleans are stored as bytes."""
    return U8 if type == BOOL else type


def _loaded(word: Value, dtype: pa.DataType) -> Value:
    machine = computed_type(dtype)
    if machine != BOOL:
        return word.to(machine)
    return word if word.type == BOOL else word.ne(0)


def _number(value: object) -> int | float:
    """Return the initial word of a component; for a null it is arbitrary."""
    assert value is None or isinstance(value, int | float)
    return 0 if value is None else int(value) if isinstance(value, bool) else value


def _no_text(name: str, text: str) -> Cell:
    raise AssertionError("there are no texts in a state")
