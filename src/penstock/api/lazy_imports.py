"""Lazy imports: declaring a query loads neither the compiler nor the runtime."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.errors import EngineError

if TYPE_CHECKING:
    from penstock.runtime.metrics import Metrics


@cache
def collector() -> Callable[..., tuple[pa.Table, Metrics]]:
    """Return the `collect` function, cached: importing it in each run would take longer."""
    from penstock.api.execute import collect  # noqa: PLC0415

    return collect


def optional_module(name: str, purpose: str) -> Any:
    """Import an optional package; the error for a missing one names the package and its extra."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:  # installed, but broken
            raise
        raise EngineError(
            f"{purpose} needs {name}, which is not installed; pip install 'penstock[{name}]'"
        ) from None
