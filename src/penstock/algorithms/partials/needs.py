"""The partial states that a set of reductions needs, without duplicates.

`mean(x)` and `sum(x)` share one sum, `mean(x)` and `count(x)` one count, `var(x)` reads the moments of
`kurtosis(x)`, and where `x` has no nulls `count(x)` is the number of rows. The set of columns with nulls is
an assumption about the data so far: when a batch breaks it, the layout changes and `origin` maps each partial
to its old state. 64-bit integer sums are an assumption too: the fold kernel checks every addition, and the
runtime continues with 128 bits (`wide`) from the first overflow on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from penstock.errors import UnsupportedError
from penstock.expr import nodes as ex
from penstock.expr.custom import Definition
from penstock.ir.nodes import Reduction


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
