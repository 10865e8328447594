"""Test the laws of a custom aggregate on samples: do `merge` and `remove` agree with `add`?"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.api.custom import CustomAggregate
from penstock.api.literals import literal, shown, whole
from penstock.errors import AggregateError, ExpressionTypeError
from penstock.errors import OverflowError as PenstockOverflow
from penstock.expr.custom import Plain, Row, State
from penstock.expr.rules import common_type
from penstock.expr.typing import operand_of
from penstock.types.arrow import as_type, kind_of, physical_values

LONGEST_STATE = 12
MOST_SAMPLES = 1_000_000
POOL = 64

Runs = tuple[Sequence[Row], Sequence[Row], Sequence[Row]]


@dataclass(frozen=True, slots=True)
class AggregateReport:
    """The laws that held, and the number of samples for each."""

    laws: tuple[str, ...]
    samples: int


def check_aggregate(
    aggregate: CustomAggregate,
    data: object,
    *,
    samples: int = 200,
    seed: int = 0,
    tolerance: float = 1e-6,
) -> AggregateReport:
    """Test the laws of a custom aggregate on sampled rows; raise an error at the first sample that breaks one.

    `data` is a list of values (of tuples, for several arguments), Arrow data with a column for each argument, or
    types to generate values of: `"float64"`, `["float64", "int64"]`. Samples are runs of neighbouring rows, short ones
    first. Floats may differ by `tolerance`, relative to the largest number in the state.

    >>> import penstock as pk
    >>> spread = pk.aggregate(
    ...     init=(float("inf"), float("-inf")),
    ...     add=lambda s, x: (pk.least(s[0], x), pk.greatest(s[1], x)),
    ...     result=lambda s: s[1] - s[0],
    ...     merge=lambda a, b: (pk.least(a[0], b[0]), pk.greatest(a[1], b[1])),
    ... )
    >>> for law in pk.check_aggregate(spread, "float64").laws:
    ...     print(law)
    merge agrees with add
    merge is associative
    init changes nothing in merge
    the order of rows makes no difference
    >>> hasty = pk.aggregate(init=0, add=lambda s, x: s + x, result=lambda s: s, merge=lambda a, b: a)
    >>> pk.check_aggregate(hasty, [1, 2])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    penstock.errors.AggregateError: merge agrees with add: not so for the rows [1], [2] and then [], ...
    """
    if not isinstance(aggregate, CustomAggregate):
        raise AggregateError(
            f"a {type(aggregate).__name__} is no aggregate that pk.aggregate made; give what pk.aggregate returned"
        )
    whole(samples, "samples", 1, MOST_SAMPLES)
    whole(seed, "seed", 0)
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float) or not tolerance >= 0:
        raise AggregateError(f"tolerance is {shown(tolerance)}; it is a number from 0 up, such as 1e-6")
    draw = random.Random(seed)  # noqa: S311 - reproducible samples
    pool, types = _sampled(aggregate.definition.arity, data, draw)
    definition = aggregate.definition.typed(types)
    laws = [law for law in _LAWS if law.needs(definition)]
    trial = _Trial(Plain(definition), tolerance)
    tried = [
        sum(trial.holds(law, runs, definition.place) for law in laws) for runs in _runs(pool, samples, draw)
    ]
    if laws and not sum(tried):
        raise AggregateError("integers left 64 bits in every sample; give smaller ones, or floats")
    return AggregateReport(tuple(law.says for law in laws), samples)


def _runs(pool: list[Row], samples: int, draw: random.Random) -> Iterator[Runs]:
    """Cut three neighbouring runs from the rows; the first two are not empty, and lengths grow slowly."""
    for sample in range(samples):
        length = min(2 + sample * (LONGEST_STATE - 2) // samples, max(len(pool), 2))
        start = draw.randrange(max(len(pool) - length, 0) + 1)
        rows = (pool * 2)[start : start + length]
        first = draw.randint(1, length - 1)
        second = draw.randint(first + 1, length)
        yield rows[:first], rows[first:second], rows[second:]


# --- laws -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Law:
    """Two ways to compute a state that must give the same result."""

    says: str
    needs: Callable[[Any], bool]
    one: Callable[[Plain, Runs], State]
    other: Callable[[Plain, Runs], State]


def _merged(p: Plain, runs: Runs) -> State:
    a, b, c = runs
    return p.fold(c, p.merge(p.fold(a), p.fold(b)))


def _from_the_left(p: Plain, runs: Runs) -> State:
    a, b, c = runs
    return p.merge(p.merge(p.fold(a), p.fold(b)), p.fold(c or b))


def _from_the_right(p: Plain, runs: Runs) -> State:
    a, b, c = runs
    return p.merge(p.fold(a), p.merge(p.fold(b), p.fold(c or b)))


def _with_init(p: Plain, runs: Runs) -> State:
    a, b, c = runs
    return p.fold(c, p.merge(p.init, p.merge(p.fold((*a, *b)), p.init)))


def _removed(p: Plain, runs: Runs) -> State:
    a, b, c = runs
    state = p.fold((*a, *b))
    for row in a:
        state = p.remove(state, row)
    return p.fold(c, state)


def _in_order(p: Plain, runs: Runs) -> State:
    return p.fold(row for run in runs for row in run)


_LAWS = (
    _Law("merge agrees with add", lambda d: d.merge is not None, _merged, _in_order),
    _Law("merge is associative", lambda d: d.merge is not None, _from_the_left, _from_the_right),
    _Law("init changes nothing in merge", lambda d: d.merge is not None, _with_init, _in_order),
    _Law(
        "the order of rows makes no difference",
        lambda d: d.commutative,
        lambda p, runs: _in_order(p, runs[::-1]),
        _in_order,
    ),
    _Law(
        "remove undoes add",
        lambda d: d.remove is not None,
        _removed,
        lambda p, runs: _in_order(p, ((), *runs[1:])),
    ),
)


@dataclass(frozen=True, slots=True)
class _Trial:
    plain: Plain
    tolerance: float

    def holds(self, law: _Law, runs: Runs, place: str) -> bool:
        """Test a law on one sample; False if integers overflow 64 bits, which proves nothing."""
        try:
            states = law.one(self.plain, runs), law.other(self.plain, runs)
            one, other = map(self.plain.result, states)
        except PenstockOverflow:
            return False
        scale = max((abs(part) for state in states for part in state if _is_finite(part)), default=1)
        if not _same(one, other, self.tolerance, max(scale, 1)):
            first, second, third = ([_shown(row) for row in run] for run in runs)
            raise AggregateError(
                f"{law.says}: not so for the rows {first}, {second} and then {third}, which give {one} in one way and "
                f"{other} in the other (defined at {place})"
            )
        return True


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _same(one: Any, other: Any, tolerance: float, scale: float) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        both_nan = math.isnan(one) and math.isnan(other)
        return both_nan or math.isclose(one, other, rel_tol=tolerance, abs_tol=tolerance * scale)
    return bool(one == other)


def _shown(row: Row) -> object:
    return row[0] if len(row) == 1 else row


# --- samples ----------------------------------------------------------------------------------------------


def _sampled(arity: int, data: object, draw: random.Random) -> tuple[list[Row], list[pa.DataType]]:
    """Return rows without nulls, and the types of the arguments."""
    columns, types = _columns(arity, data, draw)
    if len(columns) != arity:
        raise AggregateError(
            f"the aggregate takes {arity} arguments, but the data has {len(columns)} columns; give one for each"
        )
    rows = list(zip(*columns, strict=True)) if arity else [()] * POOL
    pool = [row for row in rows if None not in row]
    if not pool:
        raise AggregateError("the data has no row in which every argument is there; give some, or types")
    return pool, types


def _columns(arity: int, data: object, draw: random.Random) -> tuple[list[list[Any]], list[pa.DataType]]:
    match data:
        case pa.Table() | pa.RecordBatch():
            return [physical_values(column) for column in data.columns], list(data.schema.types)
        case pa.Array() | pa.ChunkedArray():
            return [physical_values(data)], [data.type]
        case str() | pa.DataType() | type():
            return _columns(arity, [data], draw)
        case [*given] if given and all(isinstance(argument, str | pa.DataType | type) for argument in given):
            types = [as_type(argument) for argument in given]
            return [[_made(dtype, draw) for _ in range(POOL)] for dtype in types], types
        case [*given]:
            rows = [argument if isinstance(argument, tuple) else (argument,) for argument in given]
            columns = (
                [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(arity)]
            )
            return columns, [_common(column) for column in columns]
    raise AggregateError(f"a {type(data).__name__} is no sample; give a list of values, Arrow data or types")


def _common(values: Sequence[object]) -> pa.DataType:
    literals = [literal(value) for value in values]
    common = common_type([operand_of(value, value.type) for value in literals])
    if common is None or (kind_of(common) == "null" and values):
        raise ExpressionTypeError(
            "the values of one argument are of different types, or all null; give values of one type"
        )
    return common


def _made(dtype: pa.DataType, draw: random.Random) -> object:
    """Generate a small value; floats are quarters, so that sums are exact."""
    match kind_of(dtype):
        case "bool":
            return draw.random() < 0.5
        case "int":
            return draw.randint(-9, 9)
        case "uint":
            return draw.randint(0, 9)
        case "float":
            return draw.randint(-40, 40) / 4
    raise AggregateError(f"there are no samples of type {dtype}; an argument is a number or a bool")
