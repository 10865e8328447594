"""Several values of one instant as a record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.errors import UnknownColumnError


@dataclass(frozen=True, slots=True)
class SignalRecord:
    """The argument of a traced function for a signal of several values: `q.ask`, or `q["ask"]` for any name."""

    values_by_name: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        if name not in self.values_by_name:
            known = ", ".join(map(repr, self.values_by_name))
            raise UnknownColumnError(f"the signal has no value {name!r}; it has {known}")
        return self.values_by_name[name]

    def __getattr__(self, name: str) -> Any:
        return self[name]
