"""Row counts of streaming queries as Prometheus text."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from penstock.spark.streaming.frame import OBSERVATION
from penstock.spark.streaming.shard import COUNTS

_TOTALS = COUNTS
_LATEST = ("state_bytes", "watermark")


class StreamingMetrics(StreamingQueryListener):
    """Listen to the streaming queries of a session, and sum their row counts.

    >>> metrics = pk.StreamingMetrics()                                         # doctest: +SKIP
    >>> spark.streams.addListener(metrics)                                      # doctest: +SKIP
    >>> print(metrics.prometheus())                                             # doctest: +SKIP
    """

    def __init__(self) -> None:
        self._found: dict[str, dict[str, int]] = {}
        self._over: set[str] = set()
        self._lock = threading.Lock()

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Mark a query as running, possibly after a restart."""
        with self._lock:
            self._over.discard(str(event.id))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Ignore the event."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Mark a query as terminated, and keep its counts."""
        with self._lock:
            self._over.add(str(event.id))

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Add the counts of a batch."""
        progress = event.progress
        for name, row in progress.observedMetrics.items():
            if name.startswith(OBSERVATION):
                self.add(str(progress.name or progress.id), row.asDict(), int(progress.batchDuration))

    def add(self, query: str, counts: Mapping[str, int | None], milliseconds: int) -> None:
        """Add the counts of one batch of a query."""
        with self._lock:
            found = self._found.setdefault(query, dict.fromkeys((*_TOTALS, "batches", "milliseconds"), 0))
            found["batches"] += 1
            found["milliseconds"] += milliseconds
            for name in _TOTALS:
                found[name] += counts[name] or 0
            found.update({name: value for name in _LATEST if (value := counts[name]) is not None})

    def totals(self, query: str) -> Mapping[str, int]:
        """Return the counts of a query since the listener was added, by query name, or by id if it has no name."""
        with self._lock:
            return dict(self._found.get(query, {}))

    def over(self, query: str) -> bool:
        """Check whether a query, given by id, has reported its end. Spark delivers events with a delay."""
        with self._lock:
            return query in self._over

    def prometheus(self) -> str:
        """Return all counts in the Prometheus text format."""
        with self._lock:
            found = {query: dict(counts) for query, counts in sorted(self._found.items())}
        names = dict.fromkeys(name for counts in found.values() for name in counts)
        return "".join(line + "\n" for name in names for line in _family(name, found))


def _family(name: str, found: Mapping[str, Mapping[str, int]]) -> Iterable[str]:
    kind, full = ("gauge", f"penstock_{name}") if name in _LATEST else ("counter", f"penstock_{name}_total")
    yield f"# TYPE {full} {kind}"
    for query, counts in found.items():
        if name in counts:
            yield f'{full}{{query="{_quoted(query)}"}} {counts[name]}'


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
