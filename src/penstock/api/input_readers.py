"""Read the inputs of a run: batches, or the output of live sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from penstock.api.execute import read, rows_of_files
from penstock.errors import UnsupportedError
from penstock.plan.nodes import Source
from penstock.sources.bound import Bound, is_on_files
from penstock.sources.malformed import Arrived

if TYPE_CHECKING:
    from penstock.compile import Compiled
    from penstock.runtime.metrics import Metrics


@runtime_checkable
class Arriving(Protocol):
    """An unbounded source, which also reports malformed records and, if it has splits, the split of its rows."""

    def arrivals(self, time: str, on_bad: str) -> Iterator[Arrived]:
        """Yield rows as they arrive; a split is announced before any row can overtake it."""


def inputs_of(source: Source, data: Bound, compiled: Compiled, metrics: Metrics) -> Iterator[Any]:
    """Read a stream as its rows arrive."""
    if isinstance(data, Arriving):
        return data.arrivals(source.time.column, source.on_bad)
    if is_on_files(data):
        return rows_of_files(source, data, compiled)
    return read(source, data, source.schema.names, compiled, metrics)


def refuse_endless(bound: Mapping[str, Bound]) -> None:
    """Reject a restart from state with data that would be read from its beginning again."""
    for name, data in bound.items():
        if getattr(data, "endless", False):
            raise UnsupportedError(
                f"a state does not say how far stream {name!r} was read, and all of it would count twice; "
                "go on with to_spark(spark), whose checkpoint does, or push batches with open(state=)"
            )
