"""Metrics of a run in Prometheus' text format. They carry counts and names of operators, never values of rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.runtime.metrics import Metrics

_ROWS = {
    "read": "Rows read.",
    "accepted": "Rows that reached a result or the state of an operator.",
    "late": "Rows dropped since all their windows had been emitted.",
    "partly_late": "Accepted rows that some of their windows missed.",
    "malformed": "Rows without a time, and records that could not be read.",
    "filtered": "Rows that a filter rejected.",
    "emitted": "Rows of results.",
}
_QUANTILES = (0.5, 0.95, 0.99)


def prometheus(metrics: Metrics, query: str) -> str:
    """Render the metrics of one query as text."""
    label = f'query="{_escaped(query)}"'
    return "\n".join([*_lines(metrics, label), ""])


def _lines(metrics: Metrics, label: str) -> Iterator[str]:
    for name, says in _ROWS.items():
        yield from _head(f"penstock_rows_{name}_total", says, "counter")
        yield f"penstock_rows_{name}_total{{{label}}} {getattr(metrics, name)}"
    yield from _head("penstock_batches_total", "Batches pushed.", "counter")
    yield f"penstock_batches_total{{{label}}} {metrics.batches}"
    yield from _head("penstock_queue_rows", "Rows that wait in the queue of a background run.", "gauge")
    yield f"penstock_queue_rows{{{label}}} {metrics.queue_rows}"
    yield from _head("penstock_spilled_bytes_total", "Bytes of rows written to temporary files.", "counter")
    yield f"penstock_spilled_bytes_total{{{label}}} {metrics.spilled_bytes}"
    latency = metrics.latency
    yield from _head(
        "penstock_latency_seconds", "From the arrival of rows to the results they complete.", "summary"
    )
    for share in _QUANTILES:
        yield f'penstock_latency_seconds{{{label},quantile="{share}"}} {latency.quantile(share):.9g}'
    yield f"penstock_latency_seconds_sum{{{label}}} {latency.total:.9g}"
    yield f"penstock_latency_seconds_count{{{label}}} {latency.count}"
    yield from _head("penstock_held_rows", "Rows of the state of each operator.", "gauge")
    for name, held in metrics.held.items():
        yield f'penstock_held_rows{{{label},operator="{_escaped(name)}"}} {held.rows}'
    yield from _head("penstock_held_bytes", "Bytes of the state of each operator.", "gauge")
    for name, held in metrics.held.items():
        yield f'penstock_held_bytes{{{label},operator="{_escaped(name)}"}} {held.bytes}'


def _head(name: str, says: str, kind: str) -> Iterator[str]:
    yield f"# HELP {name} {says}"
    yield f"# TYPE {name} {kind}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
