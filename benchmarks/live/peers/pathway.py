"""Pathway in this process, over rows that are in memory beforehand."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import pyarrow as pa

from benchmarks.live.feed import Feed, rows_of
from benchmarks.live.peers import PeerError
from benchmarks.live.points import Found
from benchmarks.workloads import START_US

TUMBLING_US, GAP_US = 100_000, 5_000


@contextmanager
def open_pathway() -> Iterator[Pathway | None]:
    """Give nothing where it is not installed."""
    yield Pathway() if find_spec("pathway") else None


@dataclass
class Pathway:
    """Window reductions by key in one batch, at which it is fastest; one process, whose worker count its licence limits.

    Sliding windows of a hundred panes copy each row a hundred times there; it has no look-backs and no count windows.
    """

    name: str = "Pathway"
    rows: int = 200_000
    queries: tuple[str, ...] = ("tumbling", "session", "filter")

    def answer(self, query: str, feed: Feed, threads: int) -> pa.Table:
        """Collect all results."""
        return self._run(query, feed)[0]

    def throughput(self, query: str, feed: Feed, threads: int) -> Mapping[str, Found]:
        """Run over a data frame; making it a table takes no time of the measurement."""
        _, seconds, cpu = self._run(query, feed)
        return {"": Found(feed.rows, seconds, cpu)}

    def latency(self, query: str, feed: Feed, threads: int, rate: float) -> Found:
        """Say that it is not measured: rows given one by one by Python are another program."""
        raise PeerError("Pathway: its latency is not measured")

    def source(self, feed: Feed, threads: int) -> Found | None:
        """Rows are in memory beforehand."""
        return None

    def _run(self, query: str, feed: Feed) -> tuple[pa.Table, float, float]:
        import pathway as pw  # noqa: PLC0415 - an optional peer

        logging.disable(logging.INFO)
        frame = rows_of(feed).to_pandas()
        frame["ts"] = frame["ts"].astype("int64") - START_US
        rows = pw.debug.table_from_pandas(frame)
        result = QUERIES[query](pw, rows)
        begin, begin_cpu = time.perf_counter(), time.process_time()
        found = pw.debug.table_to_pandas(result, include_id=False)
        spent = time.perf_counter() - begin, time.process_time() - begin_cpu
        pw.internals.parse_graph.G.clear()
        names = ("start", "end", "key", "value")
        return pa.table({name: pa.array(found[name].to_numpy(), pa.int64()) for name in names}), *spent


def _tumbling(pw: Any, rows: Any) -> Any:
    window = pw.temporal.tumbling(duration=TUMBLING_US, origin=0)
    return _summed(pw, rows.filter(rows.et == 1), window, 0)


def _session(pw: Any, rows: Any) -> Any:
    return _summed(pw, rows, pw.temporal.session(max_gap=GAP_US), GAP_US)


def _summed(pw: Any, rows: Any, window: Any, added: int) -> Any:
    """Sum by key and window; `added` is what our windows are longer by."""
    windows = rows.windowby(pw.this.ts, window=window, instance=pw.this.key)
    return windows.reduce(
        start=pw.this._pw_window_start,  # noqa: SLF001 - so Pathway names them
        end=pw.this._pw_window_end + added,  # noqa: SLF001
        key=pw.this._pw_instance,  # noqa: SLF001
        value=pw.reducers.sum(pw.this.val),
    )


def _filter(pw: Any, rows: Any) -> Any:
    views = rows.filter(rows.et == 1)
    return views.select(start=pw.this.ts, end=pw.this.ts, key=pw.this.key, value=pw.this.val * 2)


QUERIES = {"tumbling": _tumbling, "session": _session, "filter": _filter}
