"""Plans of tests that patch the choices of the physical plan."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from penstock.caches import CACHES


@contextmanager
def switched_off(module: Any, *obstacles: str) -> Iterator[None]:
    """Let the functions that look for obstacles to a choice find one, and keep no plan made before or meanwhile."""
    CACHES.clear()
    try:
        with patch.multiple(module, **{name: lambda *given: "switched off" for name in obstacles}):
            yield
    finally:
        CACHES.clear()
