"""Penstock: a compiled temporal query engine for Python.

>>> import pyarrow as pa, penstock as pk
>>> clicks = pk.from_arrow(pa.table({"t": [1, 2, 12], "value": [3, 4, 5]}), time="t")
>>> clicks.window(10).agg(total=pk.sum("value"), n=pk.count()).collect().to_pydict()
{'window_start': [0, 10], 'window_end': [10, 20], 'total': [7, 5], 'n': [2, 1]}

Importing this module loads nothing but itself; each public name loads what it needs when it is used.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING

from penstock.errors import (
    AggregateError,
    BindingError,
    DurationError,
    EngineError,
    ExpressionTypeError,
    LateRowsWarning,
    MalformedRowsWarning,
    MemoryLimitError,
    OverflowError,
    PenstockError,
    PlanError,
    SchemaMismatchError,
    SignalError,
    SourceError,
    SparkSettingWarning,
    SqlError,
    StateError,
    UnfinishedError,
    UnknownColumnError,
    UnsupportedError,
    VerificationError,
    WindowError,
)

if TYPE_CHECKING:
    from penstock.api.aggregates import (
        all,
        any,
        corr,
        count,
        count_distinct,
        cov,
        first,
        kurtosis,
        last,
        list,
        max,
        max_by,
        mean,
        median,
        min,
        min_by,
        mode,
        product,
        quantile,
        skew,
        std,
        sum,
        var,
    )
    from penstock.api.check_aggregate import check_aggregate
    from penstock.api.custom import aggregate
    from penstock.api.expr import Expr
    from penstock.api.functions import col, greatest, least, lit, when
    from penstock.api.join import left, right
    from penstock.api.kernel_cache import clear_cache
    from penstock.api.live_sources import scan_kafka, scan_stream
    from penstock.api.signals.feedback import feedback
    from penstock.api.signals.signal import Signal, align
    from penstock.api.source_options import arrival, every
    from penstock.api.sources import from_arrow, scan, stream, table
    from penstock.api.sql.query import sql
    from penstock.api.stream import Stream
    from penstock.api.windows import rows, session, sliding, tumbling, unbounded
    from penstock.runtime.engine import Engine
    from penstock.runtime.metrics import Metrics
    from penstock.spark.bound import from_spark
    from penstock.spark.deploy.ship import ship
    from penstock.spark.session import spark_session
    from penstock.spark.streaming.executor_errors import streaming_problem
    from penstock.spark.streaming.metrics import StreamingMetrics
    from penstock.spark.streaming.sinks import delta_sink
    from penstock.spark.table_scan import table_scan
    from penstock.state.state import State

__version__ = "0.2.0"

__all__ = [
    "AggregateError",
    "BindingError",
    "DurationError",
    "Engine",
    "EngineError",
    "Expr",
    "ExpressionTypeError",
    "LateRowsWarning",
    "MalformedRowsWarning",
    "MemoryLimitError",
    "Metrics",
    "OverflowError",
    "PenstockError",
    "PlanError",
    "SchemaMismatchError",
    "Signal",
    "SignalError",
    "SourceError",
    "SparkSettingWarning",
    "SqlError",
    "State",
    "StateError",
    "Stream",
    "StreamingMetrics",
    "UnfinishedError",
    "UnknownColumnError",
    "UnsupportedError",
    "VerificationError",
    "WindowError",
    "__version__",
    "aggregate",
    "align",
    "all",
    "any",
    "arrival",
    "check_aggregate",
    "clear_cache",
    "col",
    "corr",
    "count",
    "count_distinct",
    "cov",
    "delta_sink",
    "every",
    "feedback",
    "first",
    "from_arrow",
    "from_spark",
    "greatest",
    "kurtosis",
    "last",
    "least",
    "left",
    "list",
    "lit",
    "max",
    "max_by",
    "mean",
    "median",
    "min",
    "min_by",
    "mode",
    "product",
    "quantile",
    "right",
    "rows",
    "scan",
    "scan_kafka",
    "scan_stream",
    "session",
    "ship",
    "skew",
    "sliding",
    "spark_session",
    "sql",
    "std",
    "stream",
    "streaming_problem",
    "sum",
    "table",
    "table_scan",
    "tumbling",
    "unbounded",
    "var",
    "when",
]

_NAMES = {
    "api.aggregates": "all any corr count count_distinct cov first kurtosis last list max max_by mean "
    "median min min_by mode product quantile skew std sum var",
    "api.kernel_cache": "clear_cache",
    "api.custom": "aggregate",
    "api.expr": "Expr",
    "api.signals.feedback": "feedback",
    "api.signals.signal": "Signal align",
    "api.functions": "col greatest least lit when",
    "api.join": "left right",
    "api.check_aggregate": "check_aggregate",
    "api.sources": "from_arrow scan stream table",
    "api.sql.query": "sql",
    "api.stream": "Stream",
    "api.source_options": "arrival every",
    "api.windows": "rows session sliding tumbling unbounded",
    "runtime.engine": "Engine",
    "api.live_sources": "scan_kafka scan_stream",
    "runtime.metrics": "Metrics",
    "state.state": "State",
    "spark.bound": "from_spark",
    "spark.deploy.ship": "ship",
    "spark.session": "spark_session",
    "spark.streaming.executor_errors": "streaming_problem",
    "spark.streaming.sinks": "delta_sink",
    "spark.streaming.metrics": "StreamingMetrics",
    "spark.table_scan": "table_scan",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    """Load a public name when it is first used (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    value = getattr(import_module(f"penstock.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> Iterable[str]:  # `list` is an aggregate here
    return sorted({*globals(), *__all__})
