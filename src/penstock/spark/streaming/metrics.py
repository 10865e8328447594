"""What a streaming query counts, batch by batch, as text for Prometheus."""

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
    """Listen to the streaming queries of a session, and add up what became of their rows.

    >>> metrics = pk.StreamingMetrics()                                         # doctest: +SKIP
    >>> spark.streams.addListener(metrics)                                      # doctest: +SKIP
    >>> print(metrics.prometheus())                                             # doctest: +SKIP
    """

    def __init__(self) -> None:
        self._found: dict[str, dict[str, int]] = {}
        self._over: set[str] = set()
        self._lock = threading.Lock()

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Note that a query runs, maybe again."""
        with self._lock:
            self._over.discard(str(event.id))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Take no note."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Note that no more will come; what was counted stays."""
        with self._lock:
            self._over.add(str(event.id))

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Add what a batch counted."""
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
        """Give what a query has counted since this began to listen, by its name, or its id if it has none."""
        with self._lock:
            return dict(self._found.get(query, {}))

    def over(self, query: str) -> bool:
        """Tell whether all is known of a query, by its id: Spark tells of batches, and of the end, some time after them."""
        with self._lock:
            return query in self._over

    def prometheus(self) -> str:
        """Write all counts in the text format of Prometheus."""
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
