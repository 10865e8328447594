"""The monoid of a partial for its argument types, and the contribution of a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from penstock.algorithms import monoids
from penstock.algorithms.expressions.cells import Cell, conjunction, is_true
from penstock.algorithms.monoids import Monoid, Values
from penstock.algorithms.partials.custom import custom_monoid
from penstock.algorithms.partials.needs import MOMENTS, Partial
from penstock.errors import UnsupportedError
from penstock.expr import nodes as ex
from penstock.expr.decimals import TOTAL_DIGITS, is_exact
from penstock.loop.machine import is_text, machine_type
from penstock.loop.nodes import BOOL, I64, U8, Type, Value, const
from penstock.types.arrow import DIGITS, FEW_DIGITS

_IN_ORDER = ("first", "last")

# Returns a row's time and position, for partials that depend on order.
Moment = Callable[[], Values]


def monoid_of(partial: Partial, types: Sequence[pa.DataType], wide: bool) -> Monoid:
    """Choose the monoid for a partial's argument types."""
    match partial.kind:
        case "present":
            return monoids.present()
        case "count":
            return monoids.count()
        case "moments2" | "moments3" | "moments4" as kind:
            return monoids.moments(2 + MOMENTS.index(kind))
        case "comoments":
            return monoids.comoments()
        case "custom":
            assert partial.definition is not None
            return custom_monoid(partial.definition)
        case "least" | "greatest" if is_text(types[0]):
            (arg,) = partial.args
            assert isinstance(arg, ex.Column)
            return monoids.text_extreme(arg.name, largest=partial.kind == "greatest")
        case "sum" if is_exact(types[0]) and types[0].precision > FEW_DIGITS:
            sure = types[0].precision + TOTAL_DIGITS <= DIGITS
            return monoids.integer_sum(wide=True) if sure else monoids.long_sum()
        case _:
            return _by_machine_type(partial.kind, [_machine(partial, dtype) for dtype in types], wide)


def _machine(partial: Partial, dtype: pa.DataType) -> Type:
    machine = machine_type(dtype)
    if machine is None:
        raise UnsupportedError(f"{partial.kind} over {dtype} is not available; cast the column first")
    return U8 if machine == BOOL else machine


def _by_machine_type(kind: str, types: Sequence[Type], wide: bool) -> Monoid:
    match kind:
        case "sum":
            return monoids.float_sum() if types[0].is_float else monoids.integer_sum(wide)
        case "product":
            return monoids.float_product() if types[0].is_float else monoids.integer_product()
        case "least":
            return monoids.least(types[0])
        case "greatest":
            return monoids.greatest(types[0])
        case "least_by" | "greatest_by":
            return monoids.extreme_by(types[0], types[1], largest=kind == "greatest_by")
        case _:
            return monoids.first_or_last(types[0], last=kind.startswith("last"))


def values_added(
    partial: Partial, cells: Sequence[Cell], where: Cell | None, moment: Moment | None = None
) -> tuple[Values, Value | None]:
    """The values that a row adds to a partial, and the condition under which it does."""
    active = is_true(where) if where else None
    for cell in _decisive(partial, cells):
        active = conjunction(cell.valid, active)
    if not cells:
        return (const(1, I64),), active
    values = tuple(cell.value for cell in cells)
    match partial.kind:
        case "sum":
            values = tuple(value.to(I64) if value.type == BOOL else value for value in values)
        case "least_by" | "greatest_by":
            values = (*values, _there(cells[0]))
        case "first" | "last" | "first_valid" | "last_valid":
            assert moment is not None
            values = (*values, _there(cells[0]), *moment())
    return values, active


def _decisive(partial: Partial, cells: Sequence[Cell]) -> Sequence[Cell]:
    """The arguments that exclude a row where they are null."""
    if partial.kind in _IN_ORDER:
        return ()
    return cells[1:] if partial.kind in ("least_by", "greatest_by") else cells


def _there(cell: Cell) -> Value:
    return const(True, BOOL) if cell.valid is None else cell.valid
