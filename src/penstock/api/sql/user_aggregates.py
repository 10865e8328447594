"""User-defined aggregates, which a query calls by their argument names."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.api.custom import CustomAggregate
from penstock.api.sql.aggregates import SQL_AGGREGATES
from penstock.api.sql.group_by import EDGES, WINDOWS
from penstock.api.sql.parse import WITH_SYNTAX
from penstock.api.sql.scalars import SPECIAL, SQL_FUNCTIONS
from penstock.api.stream import Stream
from penstock.errors import ExpressionTypeError, SqlError

_SYNTAX = ("case", "if", *(name.lower() for name in WITH_SYNTAX))
_TAKEN = frozenset({*SQL_AGGREGATES, *SQL_FUNCTIONS, *SPECIAL, *WINDOWS, *EDGES, *_SYNTAX})


def parted(given: Mapping[str, object]) -> tuple[dict[str, Stream], dict[str, CustomAggregate]]:
    """Separate streams from aggregates; function names ignore case."""
    streams: dict[str, Stream] = {}
    own: dict[str, CustomAggregate] = {}
    for name, argument in given.items():
        match name, argument:
            case str(), Stream():
                streams[name] = argument
            case str(), CustomAggregate():
                own[_free(name, own)] = argument
            case _:
                raise ExpressionTypeError(
                    f"{name!r} is a {type(argument).__name__}; SQL reads streams: pk.from_arrow(...), pk.scan(...), "
                    "pk.table(...), and aggregates: pk.aggregate(...), each by its name"
                )
    return streams, own


def _free(name: str, own: Mapping[str, CustomAggregate]) -> str:
    lower = name.lower()
    if lower in _TAKEN or lower in own:
        whose = "two aggregates are" if lower in own else "a function of SQL is"
        raise SqlError(f"{whose} called {lower!r}; pass yours by another name")
    return lower
