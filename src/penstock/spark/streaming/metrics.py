"""Row counts of streaming queries as Prometheus text."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from penstock.spark.known_plans import known_plans
from penstock.spark.streaming.frame import OBSERVATION
from penstock.spark.streaming.shard import COUNTS

_TOTALS = COUNTS
_LATEST = ("state_bytes", "watermark", "batch_milliseconds")
ADAPTATIONS = "adaptations"
# Upper bounds of a histogram of batch durations: a row waits for one batch, and is in the next.
SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, float("inf"))


class StreamingMetrics(StreamingQueryListener):
    """Listen to the streaming queries of a session, and sum their row counts.

    >>> metrics = pk.StreamingMetrics()                                         # doctest: +SKIP
    >>> spark.streams.addListener(metrics)                                      # doctest: +SKIP
    >>> print(metrics.prometheus())                                             # doctest: +SKIP
    """

    def __init__(self) -> None:
        self._found: dict[str, dict[str, int]] = {}
        self._durations: dict[str, list[int]] = {}
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
                query = str(progress.name or progress.id)
                self.add(query, row.asDict(), int(progress.batchDuration))
                self.adapted(query, known_plans().changes(name.removeprefix(OBSERVATION)))

    def adapted(self, query: str, changes: int) -> None:
        """Set how often the tasks of a query have changed their plans, as far as they have reported it."""
        with self._lock:
            self._found[query][ADAPTATIONS] = changes

    def add(self, query: str, counts: Mapping[str, int | None], milliseconds: int) -> None:
        """Add the counts of one batch of a query."""
        with self._lock:
            found = self._found.setdefault(query, dict.fromkeys((*_TOTALS, "batches", "milliseconds"), 0))
            found["batches"] += 1
            found["milliseconds"] += milliseconds
            for name in _TOTALS:
                found[name] += counts[name] or 0
            latest = {**counts, "batch_milliseconds": milliseconds}
            found.update({name: value for name in _LATEST if (value := latest[name]) is not None})
            buckets = self._durations.setdefault(query, [0] * len(SECONDS))
            buckets[bisect_left(SECONDS, milliseconds / 1_000)] += 1

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
            durations = {query: list(buckets) for query, buckets in sorted(self._durations.items())}
        names = dict.fromkeys(name for counts in found.values() for name in counts)
        lines = [line for name in names for line in _family(name, found)]
        return "".join(line + "\n" for line in [*lines, *_histogram(durations, found)])


def _family(name: str, found: Mapping[str, Mapping[str, int]]) -> Iterable[str]:
    kind, full = (
        ("gauge", f"penstock_{name}")
        if name in (*_LATEST, ADAPTATIONS)
        else ("counter", f"penstock_{name}_total")
    )
    yield f"# TYPE {full} {kind}"
    for query, counts in found.items():
        if name in counts:
            yield f'{full}{{query="{_quoted(query)}"}} {counts[name]}'


def _histogram(durations: Mapping[str, list[int]], found: Mapping[str, Mapping[str, int]]) -> Iterable[str]:
    """Yield the durations of batches; their buckets are cumulative."""
    if durations:
        yield "# TYPE penstock_batch_seconds histogram"
    for query, buckets in durations.items():
        label = f'query="{_quoted(query)}"'
        for bound, number in zip(SECONDS, accumulate(buckets), strict=True):
            yield f'penstock_batch_seconds_bucket{{{label},le="{"+Inf" if bound == SECONDS[-1] else f"{bound:g}"}"}} {number}'
        yield f"penstock_batch_seconds_sum{{{label}}} {found[query]['milliseconds'] / 1_000:g}"
        yield f"penstock_batch_seconds_count{{{label}}} {sum(buckets)}"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
