"""Restore Penstock errors from the text of Spark's executor errors."""

from __future__ import annotations

import re
from typing import Any

from penstock import errors
from penstock.errors import EngineError, PenstockError, StateError
from penstock.spark.deploy.preflight import ADVICE

_RAISED = re.compile(r"penstock\.errors\.(\w+): (.*)")
_MISSING = "No module named 'penstock'"  # of an executor that has joined since, or of a worker beside a Connect server
# Messages of Spark and Hadoop about unreadable files in a checkpoint.
_DAMAGED = re.compile(
    r"\[?(CANNOT_LOAD_STATE_STORE|STATE_STORE_\w+|INVALID_\w*CHECKPOINT\w*)|(ChecksumException)"
)
# Spark writes the offsets of a batch in one atomic step: of two drivers on one checkpoint, one finds them written.
_TWO_DRIVERS = re.compile(r"CONCURRENT_STREAM_LOG_UPDATE|Multiple streaming queries are concurrently using")


def streaming_problem(query: Any) -> PenstockError | None:
    """Return the Penstock error that stopped a streaming query, if one did.

    >>> problem = pk.streaming_problem(started)                                 # doctest: +SKIP
    >>> if problem is not None:                                                 # doctest: +SKIP
    ...     raise problem
    """
    if not callable(getattr(query, "exception", None)):
        raise EngineError(
            f"streaming_problem takes the query that .start() returned, not a {type(query).__name__}"
        )
    stopped = query.exception()
    return None if stopped is None else problem_in(str(stopped))


def problem_in(text: str) -> PenstockError | None:
    """Find a Penstock error in the text of a Spark error.

    >>> problem_in("Traceback: penstock.errors.StateError: the state is damaged")
    StateError('the state is damaged')
    """
    for name, message in _RAISED.findall(text):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, PenstockError):
            return kind(message)
    if _MISSING in text:
        return EngineError(f"a Python worker of Spark cannot import Penstock: {ADVICE}")
    if _TWO_DRIVERS.search(text):
        return StateError(
            "another driver runs a query on the same checkpoint, and has begun this batch: stop one of the two; "
            "nothing is lost, and the other goes on"
        )
    found = _DAMAGED.search(text)
    return None if found is None else StateError(_damaged(found[1] or found[2]))


def _damaged(reason: str) -> str:
    return (
        f"Spark cannot read the state in the checkpoint ({reason}): files of it are damaged or gone; "
        "put them back, or begin with a new checkpoint"
    )
