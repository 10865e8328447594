"""The partial states that reductions need, the monoid of each, and the contribution of a row to it.

`mean(x)` and `sum(x)` share one sum, `mean(x)` and `count(x)` one count, `var(x)` reads the moments of
`kurtosis(x)`, and where `x` has no nulls `count(x)` is the number of rows. The set of columns with nulls is
an assumption about the data so far: when a batch breaks it, the layout changes and `origin` maps each partial
to its old state. 64-bit integer sums are an assumption too: the fold kernel checks every addition, and the
runtime continues with 128 bits (`wide`) from the first overflow on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.algorithms import monoids
from penstock.algorithms.expressions.cells import Cell, conjunction, is_true
from penstock.algorithms.expressions.lowering import Lowering
from penstock.algorithms.monoids import Monoid, Values
from penstock.algorithms.partials.custom import custom_monoid
from penstock.errors import UnsupportedError
from penstock.expr import nodes as ex
from penstock.expr.custom import Definition
from penstock.expr.decimals import TOTAL_DIGITS, is_exact
from penstock.ir.nodes import Reduction
from penstock.loop.nodes import BOOL, I64, U8, Type, Value, const
from penstock.loop.numbers import is_text, machine_type
from penstock.types.arrow import DIGITS, FEW_DIGITS


@dataclass(frozen=True, slots=True)
class Partial:
    """One monoid over some arguments: `kind` of `args`, over the rows that satisfy `where`.

    A custom one includes its definition.
    """

    kind: str
    args: tuple[ex.Expr, ...] = ()
    where: ex.Expr | None = None
    definition: Definition | None = None


ROWS = Partial("count")
PRESENT = Partial("present")

MayBeNull = Callable[[ex.Expr], bool]

MOMENTS = ("moments2", "moments3", "moments4")
_KINDS = {
    "count": "count",
    "sum": "sum",
    "mean": "sum",
    "product": "product",
    "min": "least",
    "max": "greatest",
    "all": "least",
    "any": "greatest",
    "var": "moments2",
    "std": "moments2",
    "skew": "moments3",
    "kurtosis": "moments4",
    "cov": "comoments",
    "corr": "comoments",
    "min_by": "least_by",
    "max_by": "greatest_by",
    "first": "first",
    "last": "last",
    "custom": "custom",
}
# Reductions whose state does not record whether it holds a value.
_FLAGGED = frozenset({"sum", "product", "min", "max", "all", "any"})


def partials_of(reductions: Sequence[Reduction], may_be_null: MayBeNull) -> tuple[Partial, ...]:
    """List the partials of all reductions without duplicates, the presence of a row first."""
    needed = dict.fromkeys(need for reduction in reductions for need in _needs(reduction, may_be_null))
    head = ROWS if ROWS in needed else PRESENT
    return (head, *(partial for partial in needed if partial == largest(partial, needed) and partial != head))


def _needs(reduction: Reduction, may_be_null: MayBeNull) -> tuple[Partial, ...]:
    if reduction.function == "count":
        return (counted(reduction, may_be_null),)
    value = value_of(reduction)
    if reduction.function == "mean":
        return value, counted(reduction, may_be_null)
    flag = flag_of(reduction, may_be_null)
    return (value,) if flag is None else (value, flag)


def value_of(reduction: Reduction) -> Partial:
    """The partial that holds the value of a reduction."""
    kind = _KINDS.get(reduction.function)
    if kind is None:
        raise UnsupportedError(
            f"{reduction.function} cannot be computed from parts of a window; it needs all of its rows"
        )
    if dict(reduction.options).get("ignore_nulls"):
        kind = f"{kind}_valid"
    definition = dict(reduction.options).get("definition")
    assert definition is None or isinstance(definition, Definition)
    return Partial(kind, reduction.args, reduction.where, definition)


def counted(reduction: Reduction, may_be_null: MayBeNull) -> Partial:
    """The partial that counts the rows whose arguments are not null."""
    args = tuple(arg for arg in reduction.args if may_be_null(arg))
    return Partial("count", args, reduction.where)


def flag_of(reduction: Reduction, may_be_null: MayBeNull) -> Partial | None:
    """The partial that records whether there was a value; None if the state records it, or every window has one."""
    if reduction.function not in _FLAGGED:
        return None
    (arg,), where = reduction.args, reduction.where
    null = may_be_null(arg)
    return Partial("present", (arg,) if null else (), where) if null or where is not None else None


def largest(partial: Partial, among: Iterable[Partial]) -> Partial:
    """The partial that subsumes this one: moments of the highest order needed over the same arguments."""
    if partial.kind not in MOMENTS:
        return partial
    same = (
        candidate for candidate in among if (candidate.args, candidate.where) == (partial.args, partial.where)
    )
    return max(
        (candidate for candidate in same if candidate.kind in MOMENTS), key=lambda partial: partial.kind
    )


def origin(partial: Partial, old: Sequence[Partial], may_be_null: MayBeNull) -> Partial:
    """Find the partial of another layout with the same state; `may_be_null` describes the data so far."""
    if partial in old:
        return partial
    bare = _bare(partial, may_be_null)
    found = next((candidate for candidate in old if _bare(candidate, may_be_null) == bare), None)
    assert found is not None or bare in (PRESENT, ROWS)
    return old[0] if found is None else found


def collapsing(old: Sequence[Partial], may_be_null: MayBeNull) -> list[tuple[int, int]]:
    """Pairs of partials that hold the same where no argument is null beyond those of `may_be_null`."""
    bare = [_bare(partial, may_be_null) for partial in old]
    pairs: list[tuple[int, int]] = []
    for place, (partial, without) in enumerate(zip(old, bare, strict=True)):
        if partial == without:
            continue
        same = [other for other, one in enumerate(bare) if one == without and other != place]
        exact = [other for other in same if old[other] == without]
        if not exact and without in (PRESENT, ROWS):
            pairs.append((0, place))  # flags of two columns may agree where both are null
        pairs += [(other, place) for other in (exact or same)[:1]]
    return pairs


def _bare(partial: Partial, may_be_null: MayBeNull) -> Partial:
    """The same partial without the arguments that have never been null."""
    if partial.kind not in ("count", "present"):
        return partial
    return replace(partial, args=tuple(arg for arg in partial.args if may_be_null(arg)))


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


# The arguments that a row adds to a partial, and the condition under which it does (None: always).
Contribution = tuple[Values, Value | None]


def contribution(
    lowering: Lowering, partial: Partial, moment: Callable[[], Values] | None = None
) -> Contribution:
    """The values that a row adds to a partial; `moment` gives the row's time and position, if a partial needs them."""
    if partial.where is None:
        return values_added(partial, _arguments(lowering, partial), None, moment)
    where = lowering.lower(partial.where)
    with lowering.under(is_true(where)):
        cells = _arguments(lowering, partial)
    return values_added(partial, cells, where, moment)


def _arguments(lowering: Lowering, partial: Partial) -> list[Cell]:
    if partial.kind in ("count", "present"):  # reads only the validity, of any type
        return [Cell(const(1, I64), lowering.valid(arg)) for arg in partial.args]
    return [lowering.lower(arg) for arg in partial.args]
