"""Errors of executors, which Spark hands over as text, as the errors they were."""

from __future__ import annotations

import re
from typing import Any

from penstock import errors
from penstock.errors import PenstockError

_RAISED = re.compile(r"penstock\.errors\.(\w+): (.*)")


def streaming_problem(query: Any) -> PenstockError | None:
    """Tell why a streaming query of Spark stopped, if it was for a reason of ours: as the error that was raised.

    >>> problem = pk.streaming_problem(started)                                 # doctest: +SKIP
    >>> if problem is not None:                                                 # doctest: +SKIP
    ...     raise problem
    """
    stopped = query.exception()
    return None if stopped is None else problem_in(str(stopped))


def problem_in(text: str) -> PenstockError | None:
    """Find our error in the text of Spark's.

    >>> problem_in("Traceback: penstock.errors.StateError: the state is damaged")
    StateError('the state is damaged')
    """
    for name, message in _RAISED.findall(text):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, PenstockError):
            return kind(message)
    return None
