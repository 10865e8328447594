"""Arguments that are no expressions: flags, numbers and mappings, refused by the name they are passed by."""

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
    """Take True or False, and nothing that merely counts as one of them: `final="no"` would be true."""
    if isinstance(given, bool):
        return given
    raise ExpressionTypeError(f"{what} is {shown(given)}; it is True or False")


def whole(given: object, what: str, least: int, most: int = (1 << 31) - 1) -> int:
    """Take a whole number from the least up."""
    if is_whole(given) and least <= int(given) <= most:
        return int(given)
    raise ExpressionTypeError(f"{what} is {shown(given)}; it is a whole number from {least} to {most:,}")


def texts(given: object, what: str, example: str) -> dict[str, str]:
    """Take a mapping of texts to texts; None is an empty one."""
    if given is None:
        return {}
    fault = "" if not isinstance(given, Mapping) else _fault(given)
    if isinstance(given, Mapping) and not fault:
        return dict(given)
    raise ExpressionTypeError(
        f"{what} is {shown(given)}; it is a mapping of texts, such as {example}{fault and '; '}{fault}"
    )


def _fault(given: Mapping[object, object]) -> str:
    """Say which pair is not one of texts. Values may be secret, and are not shown."""
    for name, value in given.items():
        if not isinstance(name, str) or not name:
            return f"the name {shown(name)} is none"
        if not isinstance(value, str):
            return f"the value of {name!r:.60} is of type {type(value).__name__}"
        if not (encodable(name) and encodable(value)):
            return f"the value of {name!r:.60}, or the name, is not valid Unicode"
    return ""


def encodable(text: str) -> bool:
    """Tell whether C can read a text: it has no half characters, and no zero, which ends it.

    >>> encodable("clicks"), encodable(chr(0))
    (True, False)
    """
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


def shown(given: object) -> str:
    """Say what was given: plain values as they are written, all else by its type, and the library it is of.

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
    """Tell whether this is an expression of another library.

    Nothing is asked of the object itself: any attribute of a Spark Column is another Column.
    """
    return (
        type(given).__module__.partition(".")[0] in LIBRARIES and type(given).__name__ in FOREIGN_EXPRESSIONS
    )
