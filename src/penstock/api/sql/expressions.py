"""Translate expressions: each allowed node of the syntax tree becomes an expression of the fluent API."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from functools import reduce
from operator import and_, or_

import pyarrow as pa
from sqlglot import exp

from penstock.api.expr import Expr
from penstock.api.functions import col, lit, when
from penstock.api.sql import aggregates, scalars
from penstock.api.sql.scope import ColumnResolver
from penstock.api.sql.source_span import Text
from penstock.api.sql.window_clauses import as_timedelta, interval
from penstock.expr import text as regex
from penstock.expr.show import quoted
from penstock.types.arrow import DIGITS, kind_of

# --- LIKE: patterns as prefix, suffix or substring tests, else as regular expressions.


def like(value: Expr, node: exp.Expression, text: Text) -> Expr:
    """Translate LIKE and ILIKE of a constant pattern: `%` matches any text, `_` one character."""
    if not isinstance(node.expression, exp.Literal) or not node.expression.is_string:
        raise text.error("LIKE takes a pattern in quotes", node)
    pattern = str(node.expression.this)
    if "\\" in pattern:
        raise text.error(
            "LIKE has no escapes; search for % _ and \\ themselves with contains(x, '50%')", node
        )
    if isinstance(node, exp.ILike):
        value, pattern = value.str.to_lowercase(), pattern.lower()
    return _matched(value, pattern)


def _matched(value: Expr, pattern: str) -> Expr:
    """Use prefix, suffix or substring tests, which are compiled, if they suffice; else a regular expression."""
    parts = pattern.split("%")
    first, inner, last = parts[0], [part for part in parts[1:-1] if part], parts[-1]
    if "_" in pattern or len(inner) > 1 or (inner and (first or last)):
        return value.str.contains(_expression(pattern))
    if len(parts) == 1:
        return value == pattern
    if inner:
        return value.str.contains(inner[0], literal=True)
    ends = [value.str.starts_with(first)] if first else []
    ends += [value.str.ends_with(last)] if last else []
    if not ends:  # matches any text; null stays null
        return value.str.len_chars() >= 0
    long_enough = value.str.len_chars() >= len(first) + len(last)
    return ends[0] if len(ends) == 1 else ends[0] & ends[1] & long_enough


def _expression(pattern: str) -> str:
    """Convert a pattern to a regular expression over the whole text, in which `.` also matches newlines."""
    meaning = {"%": ".*", "_": "."}
    return (
        r"(?s)\A"
        + "".join(meaning.get(character) or regex.quoted(character) for character in pattern)
        + r"\z"
    )


# --- The types of CAST, by SQL name.
#
# INT1, INT2, INT4 and INT8 count bytes, as in Postgres and DuckDB. INT16, INT32, INT64 and all UINT… count bits, as in
# DuckDB and ClickHouse.

_SEVERAL = {
    pa.bool_(): "boolean bool",
    pa.int8(): "tinyint int1 byte",
    pa.int16(): "smallint int2 int16 short",
    pa.int32(): "integer int int4 int32",
    pa.int64(): "bigint int8 int64 long",
    pa.uint8(): "utinyint uint8",
    pa.uint16(): "usmallint uint16",
    pa.uint32(): "uinteger uint uint32",
    pa.uint64(): "ubigint uint64",
    pa.float32(): "real float float4 float32",
    pa.float64(): "double float8 float64",
    pa.string(): "varchar text char string",
    pa.date32(): "date",
    pa.timestamp("us"): "timestamp datetime timestamp_us",
    pa.timestamp("us", "UTC"): "timestamptz",
    **{pa.timestamp(unit): f"timestamp_{unit}" for unit in ("s", "ms", "ns")},
}
SQL_TYPES = {name: dtype for dtype, names in _SEVERAL.items() for name in names.split()}
_DECIMALS = frozenset({"decimal", "numeric", "dec"})
SQL_TYPE_NAMES = f"there are {', '.join(SQL_TYPES)} and decimal(p, s) of up to 38 digits (int1, int2, int4 and int8 count bytes; int16, int32, int64 and all uint… count bits)"


def type_named(target: exp.Expression) -> tuple[str, pa.DataType | None]:
    """Return the name of a type as written, and the type; None if it is unknown."""
    sizes = [int(str(size.this)) for size in target.args.get("expressions") or ()]
    parsed = str(getattr(target.this, "name", ""))
    name = str(target.args.get("kind") or parsed).lower() if parsed == "USERDEFINED" else parsed.lower()
    if name in _DECIMALS:
        return name, decimal_type(*sizes) if len(sizes) <= 2 else None
    return name, None if sizes else SQL_TYPES.get(name)


def decimal_type(precision: int = 18, scale: int = 0) -> pa.DataType | None:
    """Return a decimal type, as DECIMAL without sizes has 18 digits; None if there is none of that size."""
    return pa.decimal128(precision, scale) if 0 <= scale <= precision and 0 < precision <= DIGITS else None


_ARITHMETIC: dict[type[exp.Expression], Callable[[Expr, Expr], Expr]] = {
    exp.Add: lambda a, b: a + b,
    exp.Sub: lambda a, b: a - b,
    exp.Mul: lambda a, b: a * b,
    exp.Xor: lambda a, b: a ^ b,
    exp.Pow: lambda a, b: a**b,
}
_POINT = re.compile(r"\d*\.\d*")  # of which the parser has checked that there is a digit
_CONNECTORS: dict[type[exp.Expression], Callable[[Expr, Expr], Expr]] = {exp.And: and_, exp.Or: or_}
_COMPARISONS: dict[type[exp.Expression], Callable[[Expr, Expr], Expr]] = {
    exp.EQ: lambda a, b: a == b,
    exp.NEQ: lambda a, b: a != b,
    exp.LT: lambda a, b: a < b,
    exp.LTE: lambda a, b: a <= b,
    exp.GT: lambda a, b: a > b,
    exp.GTE: lambda a, b: a >= b,
    exp.NullSafeEQ: lambda a, b: (a == b).fill_null(a.is_null() & b.is_null()),
    exp.NullSafeNEQ: lambda a, b: ~(a == b).fill_null(a.is_null() & b.is_null()),
}


@dataclass(frozen=True, slots=True)
class Translator:
    """Translates expressions over the columns in scope.

    `outer` resolves names outside of aggregates that are not columns, such as aliases; None if there is no such
    name. Without `reducing`, aggregates are rejected.
    """

    names: ColumnResolver
    reducing: bool = False
    outer: Callable[[exp.Column], Expr | None] | None = None

    @property
    def text(self) -> Text:
        return self.names.text

    def inside(self) -> Translator:
        """Return the translator for the arguments of an aggregate, which are row expressions."""
        return Translator(replace(self.names, grouped=False))

    def __call__(self, node: exp.Expression) -> Expr:
        """Translate a node and its children."""
        if isinstance(node, exp.And | exp.Or):  # without recursion: chains may have thousands of operands
            return reduce(_CONNECTORS[type(node)], map(self, _chained(node)))
        if type(node) in _ARITHMETIC:
            return _ARITHMETIC[type(node)](*self._operands(node))
        if type(node) in _COMPARISONS:
            return _COMPARISONS[type(node)](*self._alike(node.this, node.expression))
        match node:
            case exp.Column():
                return self._column(node)
            case exp.Dot():
                return self._field(node)
            case exp.Literal() | exp.Boolean() | exp.Null():
                return self._literal(node)
            case exp.Paren():
                return self(node.this)
            case exp.Neg():
                return lit(-_number(node.this, self.text)) if _is_number(node.this) else -self(node.this)
            case exp.Not():
                return ~self(node.this)
            case exp.Div():
                return scalars.divided(*self._operands(node), self.names)
            case exp.IntDiv():
                return scalars.whole_divided(*self._operands(node), self.names)
            case exp.Mod():
                a, b = self._operands(node)
                return a.remainder(b)
            case exp.Interval():
                return lit(as_timedelta(interval(node, self.text), self.text, node))
            case _:
                return self._further(node)

    def _further(self, node: exp.Expression) -> Expr:
        match node:
            case exp.Is():
                return self._is(node)
            case exp.In():
                return self._among(node)
            case exp.Between():
                low, high = node.args["low"], node.args["high"]
                value = self(node.this)
                above, below = self._like(node.this, value, low), self._like(node.this, value, high)
                return (above[0] >= above[1]) & (below[0] <= below[1])
            case exp.Like() | exp.ILike():
                matches = like(self(node.this), node, self.text)
                return ~matches if node.args.get("negate") else matches
            case exp.Case() | exp.If():
                return self._choice(node)
            case exp.Cast():
                return self._cast(node)
            case exp.DPipe():
                return self(node.this).str.concat(self(node.expression))
            case exp.Anonymous() | exp.Filter() | exp.IgnoreNulls() | exp.RespectNulls() | exp.WithinGroup():
                return self._call(node)
            case exp.Extract() | exp.Trim() | exp.Substring() | exp.Ceil() | exp.Floor():
                return scalars.special(node, self)
            case _:
                raise self.text.error("a value stands here; a sub-query stands in FROM only", node)

    def _column(self, node: exp.Column) -> Expr:
        if isinstance(node.this, exp.Star):
            raise self.text.error("a star stands alone in a SELECT list, or in count(*)", node)
        known = None if self.outer is None else self.outer(node)
        return col(self.names.column(node)) if known is None else known

    def _field(self, node: exp.Dot) -> Expr:
        """Read a field of a struct: by exact name, else ignoring case, as for columns."""
        if not isinstance(node.expression, exp.Identifier):
            raise self.text.error("behind a struct and a dot stands the name of a field", node)
        value, name = self(node.this), node.expression.name
        dtype = self.names.type_of(value)
        known = [field.name for field in dtype] if dtype is not None and pa.types.is_struct(dtype) else []
        if name not in known and not node.expression.args.get("quoted"):
            alike = [candidate for candidate in known if candidate.lower() == name.lower()]
            name = alike[0] if len(alike) == 1 else name
        return value.struct.field(name)

    def _literal(self, node: exp.Expression) -> Expr:
        match node:
            case exp.Null():
                return lit(None)
            case exp.Boolean():
                return lit(bool(node.this))
            case exp.Literal(is_string=True):
                return lit(str(node.this))
            case _:
                return lit(_number(node, self.text))

    def _alike(self, first: exp.Expression, second: exp.Expression) -> tuple[Expr, Expr]:
        """Translate two sides of a comparison; a text compared with a time is parsed as a time."""
        return self._like(first, self(first), second)

    def _like(self, first: exp.Expression, a: Expr, second: exp.Expression) -> tuple[Expr, Expr]:
        """Translate the second side only: a node compared with several others is translated once."""
        b = self(second)
        return self._as_kind(first, a, b), self._as_kind(second, b, a)

    def _operands(self, node: exp.Expression) -> tuple[Expr, Expr]:
        """Translate two operands; a number written with a point is a decimal beside a decimal."""
        a, b = self(node.this), self(node.expression)
        return self._as_decimal(node.this, a, b), self._as_decimal(node.expression, b, a)

    def _as_kind(self, node: exp.Expression, own: Expr, other: Expr) -> Expr:
        return self._as_time(node, self._as_decimal(node, own, other), other)

    def _as_decimal(self, node: exp.Expression, own: Expr, other: Expr) -> Expr:
        written = _written_with_point(node)
        if written is None or kind_of(self.names.type_of(other) or pa.null()) != "decimal":
            return own
        return lit(Decimal(written))

    def _as_time(self, node: exp.Expression, own: Expr, other: Expr) -> Expr:
        dtype = self.names.type_of(other)
        if dtype is None or kind_of(dtype) not in ("timestamp", "date") or not _instant_text(node):
            return own
        text = str(node.this if isinstance(node, exp.Literal) else node.this.this)
        zone = dtype.tz if pa.types.is_timestamp(dtype) else None
        return lit(_instant(text, node, self.text, zone is not None))

    def _is(self, node: exp.Is) -> Expr:
        value = self(node.this)
        match node.expression:
            case exp.Null():
                return value.is_null()
            case exp.Boolean(this=truth):
                return (value if truth else ~value).fill_null(lit(False))
            case _:
                raise self.text.error("after IS stands NULL, TRUE or FALSE", node)

    def _among(self, node: exp.In) -> Expr:
        values = node.args.get("expressions") or []
        if not values:
            raise self.text.error("IN takes a list of values, such as IN (1, 2)", node)
        subject = self(node.this)
        if all(
            isinstance(value, exp.Literal | exp.Boolean | exp.Neg) and _constant(value) for value in values
        ):
            pairs = [self._like(node.this, subject, value) for value in values]
            return pairs[0][0].is_in([constant_of(right) for _, right in pairs])
        found = [a == b for a, b in (self._like(node.this, subject, value) for value in values)]
        whole = found[0]
        for part in found[1:]:
            whole |= part
        return whole

    def _choice(self, node: exp.Case | exp.If) -> Expr:
        branches = [node] if isinstance(node, exp.If) else node.args.get("ifs") or []
        subject = None if isinstance(node, exp.If) else node.this
        value = None if subject is None else self(subject)
        made = None
        for branch in branches:
            if subject is None or value is None:
                condition = self(branch.this)
            else:
                own, other = self._like(subject, value, branch.this)
                condition = own == other
            made = (when(condition) if made is None else made.when(condition)).then(self(branch.args["true"]))
        if made is None:
            raise self.text.error(
                "this CASE has no WHEN; write CASE WHEN condition THEN value ELSE value END", node
            )
        default = node.args.get("false" if isinstance(node, exp.If) else "default")
        return made if default is None else made.otherwise(self(default))

    def _cast(self, node: exp.Cast) -> Expr:
        name, dtype = type_named(node.args["to"])
        if dtype is None:
            sizes = node.args["to"].args.get("expressions")
            hint = "types but decimals have no sizes here, write varchar without one; " if sizes else ""
            raise self.text.error(f"there is no cast to {quoted(name)}; {hint}{SQL_TYPE_NAMES}", node)
        if kind_of(dtype) in ("timestamp", "date") and _instant_text(node.this):
            instant = _instant(str(node.this.this), node, self.text, getattr(dtype, "tz", None) is not None)
            exact = lit(instant.date() if pa.types.is_date(dtype) else instant)
            return exact if pa.types.is_date(dtype) or dtype.unit == "us" else exact.cast(dtype)
        return self(node.this).cast(dtype)

    def _call(self, node: exp.Expression) -> Expr:
        reduction = aggregates.read(node, self.text)
        if reduction is None:
            return scalars.call(node, self)
        if not self.reducing:
            raise self.text.error(
                "an aggregate stands in SELECT, HAVING or ORDER BY, and never inside another; "
                "a sub-query can aggregate first", node,
            )  # fmt: skip
        return aggregates.made(reduction, self.inside())


def _chained(node: exp.And | exp.Or) -> list[exp.Expression]:
    """List the operands of a chain of one connector, first to last."""
    found: list[exp.Expression] = []
    operand: exp.Expression = node
    while type(operand) is type(node):
        found.append(operand.expression)
        operand = operand.this
    return [operand, *reversed(found)]


def _is_number(node: exp.Expression) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string


def _written_with_point(node: exp.Expression) -> str | None:
    """Return the digits and the sign of a number with a point and without an exponent; None for anything else."""
    inner = node.this if isinstance(node, exp.Neg) else node
    text = str(inner.this) if _is_number(inner) else ""
    return f"{'-' * isinstance(node, exp.Neg)}{text}" if _POINT.fullmatch(text) else None


def _number(node: exp.Expression, text: Text) -> int | float:
    written = str(node.this)
    try:
        return int(written) if written.isdigit() else float(written)
    except ValueError:
        raise text.error(
            "this number cannot be read; write digits, with a point or an exponent", node
        ) from None


def _constant(node: exp.Expression) -> bool:
    return not isinstance(node, exp.Neg) or _is_number(node.this)


def constant_of(expr: Expr) -> object:
    """Return the value of a literal, as `is_in` takes it."""
    literal = expr.node
    value = getattr(literal, "value", None)
    dtype = getattr(literal, "type", pa.null())
    return value if kind_of(dtype) not in ("timestamp", "date") else _scalar(value, dtype)


def _scalar(ticks: object, dtype: pa.DataType) -> object:
    """Convert ticks of a literal to a value: lists of constants take values."""
    from datetime import UTC, timedelta  # noqa: PLC0415 - loaded on first use

    assert isinstance(ticks, int)
    if pa.types.is_date(dtype):
        return date(1970, 1, 1) + timedelta(days=ticks)
    start = datetime(1970, 1, 1, tzinfo=UTC)
    found = start + timedelta(microseconds=ticks)
    return found if dtype.tz else found.replace(tzinfo=None)


def _instant_text(node: exp.Expression) -> bool:
    inner = node.this if isinstance(node, exp.Cast) else node
    return isinstance(inner, exp.Literal) and bool(inner.is_string)


def _instant(written: str, node: exp.Expression, text: Text, zoned: bool) -> datetime:
    """Parse a time; without a zone it is in UTC."""
    from datetime import UTC  # noqa: PLC0415

    try:
        found = datetime.fromisoformat(written.strip())
    except ValueError:
        raise text.error("this is not a time; write one like '2026-01-31 12:00:00'", node) from None
    if zoned:
        return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    return found if found.tzinfo is None else found.astimezone(UTC).replace(tzinfo=None)
