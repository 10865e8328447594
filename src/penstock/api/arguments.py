"""Check arguments that are not expressions: flags, numbers and mappings. Errors name the argument."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.errors import ExpressionTypeError
from penstock.types.duration import is_whole

LIBRARIES = {
    "pyspark": "PySpark", "polars": "Polars", "pandas": "pandas", "numpy": "NumPy", "pyarrow": "PyArrow",
    "duckdb": "DuckDB", "_duckdb": "DuckDB", "ibis": "Ibis", "sqlalchemy": "SQLAlchemy",
}  # fmt: skip
FOREIGN_EXPRESSIONS = {"Col", "Column", "Expr", "Expression", "When", "Then", "ChainedWhen", "ChainedThen"}


def flag(given: object, what: str) -> bool:
    """Check for True or False, and no other truthy value: `final="no"` would count as true."""
    if isinstance(given, bool):
        return given
    raise ExpressionTypeError(f"{what} is {shown(given)}; it is True or False")


def whole(given: object, what: str, least: int, most: int = (1 << 31) - 1) -> int:
    """Check for an integer from `least` to `most`."""
    if is_whole(given) and least <= int(given) <= most:
        return int(given)
    raise ExpressionTypeError(f"{what} is {shown(given)}; it is a whole number from {least} to {most:,}")


def texts(given: object, what: str, example: str) -> dict[str, str]:
    """Check for a mapping of strings to strings; None is an empty one."""
    if given is None:
        return {}
    fault = "" if not isinstance(given, Mapping) else _fault(given)
    if isinstance(given, Mapping) and not fault:
        return dict(given)
    raise ExpressionTypeError(
        f"{what} is {shown(given)}; it is a mapping of texts, such as {example}{fault and '; '}{fault}"
    )


def _fault(given: Mapping[object, object]) -> str:
    """Describe the pair that is not of strings. Values may be secret, and are not shown."""
    for name, value in given.items():
        if not isinstance(name, str) or not name:
            return f"the name {shown(name)} is none"
        if not isinstance(value, str):
            return f"the value of {name!r:.60} is of type {type(value).__name__}"
        if not (encodable(name) and encodable(value)):
            return f"the value of {name!r:.60}, or the name, is not valid Unicode"
    return ""


def encodable(text: str) -> bool:
    """Return whether C code can read a text: it has no lone surrogates and no NUL.

    >>> encodable("clicks"), encodable(chr(0))
    (True, False)
    """
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


def shown(given: object) -> str:
    """Describe an argument: plain values as written, others by their type and library.

    >>> shown("nope"), shown(lambda x: x)
    ("'nope'", 'a function')
    """
    plain = given is None or isinstance(given, (bool, int, float, str))
    text = repr(given) if plain else ""
    if plain and len(text) <= 60:
        return text
    library = LIBRARIES.get(type(given).__module__.partition(".")[0])
    return f"a {type(given).__name__}" if library is None else f"a {library} {type(given).__name__}"


def written_elsewhere(given: object) -> bool:
    """Return whether an object is an expression of another library.

    This reads no attribute of the object: any attribute of a Spark Column is another Column.
    """
    return (
        type(given).__module__.partition(".")[0] in LIBRARIES and type(given).__name__ in FOREIGN_EXPRESSIONS
    )
