"""Row counts of a run: every row read is accounted for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from weakref import ref

from penstock.errors import PenstockError
from penstock.runtime.adapt.history import Adaptation
from penstock.runtime.latency import Latency
from penstock.runtime.prometheus import prometheus

if TYPE_CHECKING:
    from penstock.runtime.join_metrics import JoinReport


class StateSize(NamedTuple):
    """The size of an operator's state, in the form in which it is saved."""

    rows: int
    bytes: int


@dataclass
class Metrics:
    """Row counts of one run. `accepted + late + malformed + filtered = read` holds after every batch.

    A row is *malformed* without a time, *late* when every window that holds it has been emitted,
    *filtered* when a filter before the first window rejects it, and *accepted* otherwise. An accepted row is
    also *partly late* when some of the windows that hold it had been emitted. A stream that two branches of a query
    read counts once for each. `ties` counts the rows that only their values order, where the query can detect it: rows
    of a Spark DataFrame that share their time and sequence with another row, of the same batch if it is a stream.
    `joins` has a report on each join in windows, by its name in `explain("ir")`: windows, rows, pairs, throughput,
    latency, progress, and the algorithms used. `adaptations` lists what the run has changed while it ran: when, which
    operator, what from and to, why, and how much faster rows were processed afterwards.

    Of an open query, `latency` has the seconds from the arrival of rows to the results they complete: `p50`, `p95`,
    `p99` and more. `queue_rows` counts the rows that wait in the queue of a background run. `held` measures the state of
    each operator, by its name in `explain("ir")`, each time it is read, which takes as long as saving the state.
    `spilled_bytes` counts what was written to temporary files because of `Engine(memory=)`.

    >>> Metrics(read=3, accepted=2, late=1).balanced
    True
    """

    read: int = 0
    accepted: int = 0
    late: int = 0
    malformed: int = 0
    filtered: int = 0
    emitted: int = 0
    batches: int = 0
    ties: int = 0
    partly_late: int = 0
    spilled_bytes: int = field(default=0, compare=False)
    joins: dict[str, JoinReport] = field(default_factory=dict, compare=False, repr=False)
    latency: Latency = field(default_factory=Latency, compare=False, repr=False)
    queue_rows: int = field(default=0, compare=False, repr=False)
    adaptations: list[Adaptation] = field(default_factory=list, compare=False, repr=False)
    measure: Callable[[], dict[str, StateSize]] | None = field(default=None, compare=False, repr=False)

    @property
    def counts(self) -> dict[str, int]:
        """The row and batch counts by name.

        >>> Metrics(read=3).counts["read"]
        3
        """
        return {column.name: getattr(self, column.name) for column in fields(self) if column.compare}

    @property
    def held(self) -> dict[str, StateSize]:
        """The rows and bytes of each operator's state; empty unless the query is open.

        >>> import penstock as pk
        >>> events = pk.stream("events", {"t": "int64", "k": "string"}, time="t")
        >>> with events.window(10, by="k").agg(n=pk.count()).open() as live:
        ...     _ = live.push([{"t": 1, "k": "a"}, {"t": 2, "k": "b"}])
        ...     sum(held.rows for held in live.metrics.held.values())
        2
        """
        return {} if self.measure is None else self.measure()

    def prometheus(self, query: str = "") -> str:
        """Render the metrics in Prometheus' text format; `query` labels them.

        >>> Metrics(read=3, accepted=3).prometheus("clicks").splitlines()[2]
        'penstock_rows_read_total{query="clicks"} 3'
        """
        return prometheus(self, query)

    def load(self, counts: Mapping[str, int]) -> None:
        """Restore saved counts."""
        for name in self.counts.keys() & counts.keys():
            setattr(self, name, counts[name])

    @property
    def balanced(self) -> bool:
        """Whether every row read is accounted for."""
        return self.accepted + self.late + self.malformed + self.filtered == self.read

    def check(self) -> None:
        """Raise if a row is unaccounted for, which is a bug in Penstock."""
        if not self.balanced:
            raise PenstockError(f"rows are unaccounted for, please report this: {self}")

    def update(self, other: Metrics) -> None:
        """Replace the counts by those of another object, in place."""
        if not isinstance(other, Metrics):
            raise PenstockError(
                f"metrics take over the counts of a pk.Metrics, not of a {type(other).__name__}"
            )
        for column in fields(self):
            setattr(self, column.name, getattr(other, column.name))


class MeasuredRun(Protocol):
    """A run whose state can be measured."""

    def held(self) -> dict[str, StateSize]:
        """Measure the state of each operator."""


def measure_of(run: ref[Any]) -> Callable[[], dict[str, StateSize]]:
    """Return what measures a run (`MeasuredRun`), without keeping it alive."""

    def measure() -> dict[str, StateSize]:
        known: MeasuredRun | None = run()
        return {} if known is None else known.held()

    return measure
