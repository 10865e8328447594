"""Every error and warning a user can meet, each saying what, where and what to do.

All errors derive from `PenstockError`, so one `except pk.PenstockError` catches them all. Each also derives
from the built-in exception a Python user would expect (`TypeError`, `ValueError`, …).
"""

from __future__ import annotations

import re

# Credentials go up to the last "@": passwords hold slashes. `pathlib` leaves one slash of two.
_CREDENTIALS = re.compile(r"(\b[A-Za-z][A-Za-z0-9+.-]+:/+)\S*@")
_QUERY = re.compile(r"(\b[A-Za-z][A-Za-z0-9+.-]+:/+[^\s?]*\?)(?=[^\s'\"]*=)[^\s'\"]*")


def redacted(text: str) -> str:
    """Replace what may be secret in the addresses of a text: users and passwords, and values of queries.

    >>> redacted("s3://me:secret@bucket/a.parquet and https://host/b.csv?token=abc")
    's3://***@bucket/a.parquet and https://host/b.csv?***'
    """
    if ":/" not in text:
        return text
    return _QUERY.sub(r"\1***", _CREDENTIALS.sub(r"\1***@", text))


class PenstockError(Exception):
    """The root of every error Penstock raises on purpose. Addresses in its message are redacted."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(redacted(arg) if isinstance(arg, str) else arg for arg in args))


class LateRowsWarning(UserWarning):
    """Rows of a run are late, and neither `lateness=`, how late they may be, nor `late_to=`, where they go, was given."""


class MalformedRowsWarning(UserWarning):
    """Malformed rows were dropped, and `on_bad=` was not given."""


class SparkSettingWarning(UserWarning):
    """A setting of a Spark session harms the query; the message names the setting and the value to give it."""


class UnknownColumnError(PenstockError, KeyError):
    """A column is named that the stream does not have."""

    def __str__(self) -> str:  # KeyError would print the repr of the message
        return str(self.args[0]) if self.args else ""


class ExpressionTypeError(PenstockError, TypeError):
    """An expression is applied to types it is not defined for."""


class AggregateError(PenstockError, TypeError):
    """A custom aggregate cannot be traced, or its functions contradict each other."""


class DurationError(PenstockError, ValueError):
    """A duration cannot be read, or does not fit the time column's unit."""


class WindowError(PenstockError, ValueError):
    """A window is empty, negative, or would create far too many windows."""


class UnfinishedError(PenstockError, AttributeError):
    """A window or a look-back is used where only its aggregates can be."""


class SignalError(PenstockError, ValueError):
    """A signal is made of what cannot be one: other keys, other clocks, or two values at one instant."""


class SqlError(PenstockError, ValueError):
    """SQL text cannot be parsed, or names something that does not exist; the message gives the line and column."""


class BindingError(PenstockError, ValueError):
    """A stream of the query has no data bound to it, or data is bound to no stream."""


class SchemaMismatchError(PenstockError, ValueError):
    """Bound data does not have the columns or types the stream declares."""


class SourceError(PenstockError, OSError):
    """A file or stream cannot be read."""


class OverflowError(PenstockError, ArithmeticError):
    """An integer result does not fit its type."""


class EngineError(PenstockError, ValueError):
    """The settings of an engine are invalid: no threads, empty tasks, an unknown back end."""


class MemoryLimitError(PenstockError, MemoryError):
    """An operator needs more memory than `memory=` allows, or rows beyond it cannot be written to disk."""


class UnsupportedError(PenstockError, NotImplementedError):
    """The query is meaningful, but this version cannot run it."""


class StateError(PenstockError, ValueError):
    """Saved state or a cached kernel is damaged, or belongs to another query or version."""


class PlanError(PenstockError, ValueError):
    """A plan given as text is damaged, or was written by another version."""


class VerificationError(PenstockError, AssertionError):
    """A compiler stage produced a program that breaks its own grammar: a bug in Penstock."""
