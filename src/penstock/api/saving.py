"""Write the state of a query to a file, and read it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from os import PathLike

from penstock.errors import StateError
from penstock.state.state import State


class Savable:
    """A run with a state."""

    @abstractmethod
    def state(self) -> State:
        """Return the state of the query, to resume from later."""

    @abstractmethod
    def explain(self) -> str:
        """Render the physical plan as it runs now, and what the run has changed: when, from, to and why.

        >>> import penstock as pk
        >>> events = pk.stream("events", {"t": "int64", "k": "int64"}, time="t")
        >>> with events.window(10, by="k").agg(n=pk.count()).open() as live:
        ...     _ = live.push([{"t": 1, "k": 7}])
        ...     live.explain().splitlines()[-4:]
        ['adaptations:', '  none', 'sensors (means of late tasks):', '  w1: no task was measured yet']
        """

    def save(
        self,
        path: str | PathLike[str],
        *,
        storage_options: Mapping[str, object] | None = None,
        filesystem: object = None,
    ) -> None:
        """Write the state to a file, to resume with `open(state=path)` or `run(..., state=path)`.

        The path may be a URI, as in `scan`.
        """
        self.state().save(path, storage_options=storage_options, filesystem=filesystem)


def as_state(state: object) -> State:
    """Load saved state from a path, bytes, or a State."""
    match state:
        case State():
            return state
        case bytes() | bytearray() | memoryview():
            return State.from_bytes(bytes(state))
        case str() | PathLike():
            return State.load(state)
        case _:
            raise StateError(f"state= takes a path, bytes or a pk.State, not a {type(state).__name__}")
